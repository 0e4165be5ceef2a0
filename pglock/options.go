package pglock

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix is the prefix of names in the table unless the caller sets another.
const DefaultPrefix = "lock"

type options struct {
	table   string
	prefix  string
	create  bool
	listen  bool
	always  bool            // the listening connection is opened at once and stays
	direct  *pgx.ConnConfig // for the listening connection; nil: that of the pool
	timeout time.Duration

	retention time.Duration // 0: unused rows stay

	pooled *atomic.Bool // a transaction pooler may be between: no statement is prepared
}

func defaults() options {
	return options{table: DefaultTable, prefix: DefaultPrefix, create: true, listen: true, timeout: 5 * time.Second, retention: backend.DefaultRetention, pooled: new(atomic.Bool)}
}

// Option is an option of New.
type Option func(*options) error

// WithTable sets the lock table, as table or schema.table, instead of [DefaultTable].
func WithTable(table string) Option {
	return func(o *options) error {
		o.table = table
		_, err := parseTable(table)
		return err
	}
}

// WithPrefix sets the prefix of names in the table instead of [DefaultPrefix]. All
// clients that share a lock must use the same prefix.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.prefix = prefix
		return checkPrefix(prefix)
	}
}

// WithoutCreate prevents New from creating the table; see [Schema].
func WithoutCreate() Option {
	return func(o *options) error { o.create = false; return nil }
}

// WithoutListen opens no listening connection and prepares no statements: waiters poll.
func WithoutListen() Option {
	return func(o *options) error { o.listen, o.direct = false, nil; return nil }
}

// WithListenAlways opens the listening connection at once and keeps it until Close. The
// server then notifies each holder whose lock is broken, and the backend declares
// PushesLoss. Without it a process listens only while it waits for a lock and for a minute
// after that. New fails if notifications do not arrive. Each NOTIFY in the database wakes
// the server process of each such connection.
func WithListenAlways() Option {
	return func(o *options) error { o.always = true; return nil }
}

// WithListenConfig is for a pool behind a transaction pooler: the listening connection
// uses cfg, which is of the server itself. Statements of the pool are not prepared. cfg
// must come from [pgx.ParseConfig], lead to the same database, and not change later.
func WithListenConfig(cfg *pgx.ConnConfig) Option {
	return func(o *options) error {
		if cfg == nil {
			return backend.Invalid("listen configuration", "nil", "a *pgx.ConnConfig")
		}
		o.listen, o.direct = true, cfg
		return nil
	}
}

// WithTimeout sets how long a statement waits for the server if its context does not
// end sooner. The default is 5 s, the minimum 10 ms.
func WithTimeout(d time.Duration) Option {
	return func(o *options) error {
		if d < 10*time.Millisecond {
			return backend.Invalid("timeout", d, "10ms or more")
		}
		o.timeout = d
		return nil
	}
}

// WithRetention sets after which time without use clients remove the row of a name. The
// default is 24 h, the minimum one minute; 0 disables it. Tokens still rise.
func WithRetention(d time.Duration) Option {
	return func(o *options) error {
		o.retention = d
		return backend.CheckRetention(d)
	}
}

// checkPrefix refuses a prefix with which two pairs of prefix and name could share a row.
func checkPrefix(prefix string) error {
	if len(prefix) > 200 || strings.ContainsFunc(prefix, func(r rune) bool { return r == ':' || r < ' ' || r == 0x7f }) {
		return backend.Invalid("prefix", prefix, "at most 200 bytes without ':' and control characters")
	}
	return nil
}

// Key returns the value of the column name for a lock.
func Key(prefix, name string) []byte { return []byte(prefix + ":" + name) }
