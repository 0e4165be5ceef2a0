package mysqllock

import (
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// DefaultTable is the table unless another is asked for.
const DefaultTable = "interlock"

// DefaultBell is on how many connections, at most, waiters are told of their turn.
const DefaultBell = 8

type options struct {
	table   string
	prefix  string
	create  bool
	timeout time.Duration // of one statement, and of getting a connection for it
	bell    int           // connections that wait for names, at most; none: poll
}

func defaults() options {
	return options{table: DefaultTable, prefix: DefaultPrefix, create: true, timeout: 5 * time.Second, bell: DefaultBell}
}

// Option changes what New does.
type Option func(*options) error

// WithTable names the table, as table or database.table.
func WithTable(name string) Option { return func(o *options) error { o.table = name; return nil } }

// WithPrefix separates the locks of one application from those of others in the
// same table.
func WithPrefix(prefix string) Option {
	return func(o *options) error { o.prefix = prefix; return checkPrefix(prefix) }
}

// WithCreate says whether a missing table is created, which it is by default.
func WithCreate(create bool) Option { return func(o *options) error { o.create = create; return nil } }

// WithTimeout bounds each statement, and the wait for a connection of the pool.
func WithTimeout(d time.Duration) Option {
	return func(o *options) error {
		o.timeout = d
		if d < 50*time.Millisecond {
			return backend.Invalid("timeout", d, fmt.Sprintf("at least %v", 50*time.Millisecond))
		}
		return nil
	}
}

// WithBell bounds the connections on which those who wait are told of their turn,
// one for each key that is waited for. They are at most a quarter of the pool; those
// who wait for other keys poll, and all do if it is 0.
func WithBell(connections int) Option {
	return func(o *options) error {
		o.bell = connections
		if connections < 0 || connections > maxBell {
			return backend.Invalid("bell", connections, fmt.Sprintf("0 to %d", maxBell))
		}
		return nil
	}
}

const maxBell = 10000
