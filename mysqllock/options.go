package mysqllock

import (
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	// DefaultTable is the name of the table without WithTable.
	DefaultTable = "interlock"

	minTimeout = 50 * time.Millisecond
)

type options struct {
	table     string
	prefix    string
	create    bool
	notify    bool          // the server wakes waiters, if it can
	timeout   time.Duration // of one statement, and of getting a connection for it
	retention time.Duration // 0: rows of unused names stay
}

func defaults() options {
	return options{
		table: DefaultTable, prefix: DefaultPrefix, create: true, notify: true, timeout: 5 * time.Second,
		retention: backend.DefaultRetention,
	}
}

// Option configures the backend that New returns.
type Option func(*options) error

// WithTable names the table, as table or database.table. Two others have its name and _places or _events behind it.
func WithTable(name string) Option { return func(o *options) error { o.table = name; return nil } }

// WithPrefix separates the locks of one application from those of others in the
// same table.
func WithPrefix(prefix string) Option {
	return func(o *options) error { o.prefix = prefix; return checkPrefix(prefix) }
}

// WithCreate sets whether New creates missing tables and procedures. The default is true.
func WithCreate(create bool) Option { return func(o *options) error { o.create = create; return nil } }

// WithTimeout bounds each statement, and the wait for a connection of the pool. It is at
// least 50 ms.
func WithTimeout(d time.Duration) Option {
	return func(o *options) error {
		o.timeout = d
		if d < minTimeout {
			return backend.Invalid("timeout", d, fmt.Sprintf("at least %v", minTimeout))
		}
		return nil
	}
}

// WithNotify sets whether the server wakes waiters, over a connection that the driver keeps for that. The default is
// true. Otherwise they poll.
func WithNotify(notify bool) Option { return func(o *options) error { o.notify = notify; return nil } }

// WithRetention sets for how long the rows of a name are kept after its last use. The default is
// 24 h, the least a minute; 0 keeps all rows.
func WithRetention(d time.Duration) Option {
	return func(o *options) error { o.retention = d; return backend.CheckRetention(d) }
}
