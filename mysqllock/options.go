package mysqllock

import (
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	// DefaultTable is the name of the table without WithTable.
	DefaultTable = "interlock"
	// DefaultNotifyConns is the maximum of connections that wait for named locks.
	DefaultNotifyConns = 8

	maxNotifyConns = 10000
	minTimeout     = 50 * time.Millisecond
)

type options struct {
	table       string
	prefix      string
	create      bool
	timeout     time.Duration // of one statement, and of getting a connection for it
	notifyConns int           // 0: waiters poll
	retention   time.Duration // 0: rows of unused names stay
}

func defaults() options {
	return options{table: DefaultTable, prefix: DefaultPrefix, create: true, timeout: 5 * time.Second, notifyConns: DefaultNotifyConns, retention: backend.DefaultRetention}
}

// Option configures the backend that New returns.
type Option func(*options) error

// WithTable names the table, as table or database.table.
func WithTable(name string) Option { return func(o *options) error { o.table = name; return nil } }

// WithPrefix separates the locks of one application from those of others in the
// same table.
func WithPrefix(prefix string) Option {
	return func(o *options) error { o.prefix = prefix; return checkPrefix(prefix) }
}

// WithCreate sets whether New creates a missing table. The default is true.
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

// WithNotifyConns bounds the connections that wait for named locks, one for each key that
// has waiters. The driver uses at most a quarter of the pool for them. Waiters for further
// keys poll; with 0 all waiters poll.
func WithNotifyConns(connections int) Option {
	return func(o *options) error {
		o.notifyConns = connections
		if connections < 0 || connections > maxNotifyConns {
			return backend.Invalid("notify_conns", connections, fmt.Sprintf("0 to %d", maxNotifyConns))
		}
		return nil
	}
}

// WithRetention sets for how long the rows of a name are kept after its last use. The default is
// 24 h, the least a minute; 0 keeps all rows.
func WithRetention(d time.Duration) Option {
	return func(o *options) error { o.retention = d; return backend.CheckRetention(d) }
}
