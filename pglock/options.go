package pglock

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix stands before every name unless another is asked for.
const DefaultPrefix = "lock"

type options struct {
	table   string
	prefix  string
	create  bool
	listen  bool
	direct  *pgx.ConnConfig // to listen on, if not that of the pool
	timeout time.Duration

	noCancel *atomic.Bool // of a pool of our own; see dialOnce
}

func defaults() options {
	return options{table: DefaultTable, prefix: DefaultPrefix, create: true, listen: true, timeout: 5 * time.Second}
}

// Option changes what New does.
type Option func(*options) error

// WithTable uses another table than [DefaultTable], as table or schema.table.
func WithTable(table string) Option {
	return func(o *options) error {
		o.table = table
		_, err := quote(table)
		return err
	}
}

// WithPrefix sets what stands before a lock's name in the table, instead of
// [DefaultPrefix]. All who share a lock must use the same prefix.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.prefix = prefix
		return checkPrefix(prefix)
	}
}

// WithoutCreate leaves it to the caller to make the table; see [Schema].
func WithoutCreate() Option {
	return func(o *options) error { o.create = false; return nil }
}

// WithoutListen makes no connection to be told things on, and prepares no
// statements. Waiters then ask again and again, as they do behind a transaction
// pooler that was recognised.
func WithoutListen() Option {
	return func(o *options) error { o.listen, o.direct = false, nil; return nil }
}

// WithListenConfig says how to connect to the server itself, for a pool behind a
// transaction pooler: the one connection on which waiters are told things is made
// that way, and statements of the pool are not prepared. cfg must come from
// [pgx.ParseConfig], lead to the same database, and not be changed afterwards.
func WithListenConfig(cfg *pgx.ConnConfig) Option {
	return func(o *options) error {
		if cfg == nil {
			return backend.Invalid("configuration to listen", "nil", "a *pgx.ConnConfig")
		}
		o.listen, o.direct = true, cfg
		return nil
	}
}

// WithTimeout sets how long an answer of the server may take where a context does
// not end sooner; 5 s if not given.
func WithTimeout(d time.Duration) Option {
	return func(o *options) error {
		if d < 10*time.Millisecond {
			return backend.Invalid("timeout", d, "10ms or more")
		}
		o.timeout = d
		return nil
	}
}

// checkPrefix keeps pairs of prefix and name from meeting in one row.
func checkPrefix(prefix string) error {
	if len(prefix) > 200 || strings.ContainsFunc(prefix, func(r rune) bool { return r == ':' || r < ' ' || r == 0x7f }) {
		return backend.Invalid("prefix", prefix, "at most 200 bytes without ':' and control characters")
	}
	return nil
}

// Key is what the column name holds for a lock.
func Key(prefix, name string) []byte { return []byte(prefix + ":" + name) }

func (b *Backend) key(name string) []byte { return Key(b.opt.prefix, name) }
