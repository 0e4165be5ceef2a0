package backend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Opener opens a backend from a URL. It must read every parameter that it knows through
// u.Params and return u.Params.Err() before it connects. If the service does not answer, it
// must return within a bounded time an error with the address. It never puts a secret into
// an error.
type Opener func(ctx context.Context, u *URL) (Backend, error)

var registry struct {
	sync.RWMutex
	open map[string]Opener
}

// drivers of this project, so that a forgotten import can be named.
var drivers = map[string]string{
	"mem":            "github.com/interlock-go/lock/memlock",
	"file":           "github.com/interlock-go/lock/filelock",
	"redis":          "github.com/interlock-go/lock/redislock",
	"rediss":         "github.com/interlock-go/lock/redislock",
	"redis+sentinel": "github.com/interlock-go/lock/redislock",
	"redis+cluster":  "github.com/interlock-go/lock/redislock",
	"redlock":        "github.com/interlock-go/lock/redislock/redlock",
	"etcd":           "github.com/interlock-go/lock/etcdlock",
	"etcds":          "github.com/interlock-go/lock/etcdlock",
	"memcached":      "github.com/interlock-go/lock/memcachelock",
	"memcacheds":     "github.com/interlock-go/lock/memcachelock",
	"s3":             "github.com/interlock-go/lock/s3lock",
	"zk":             "github.com/interlock-go/lock/zklock",
	"mysql":          "github.com/interlock-go/lock/mysqllock",
	"mariadb":        "github.com/interlock-go/lock/mysqllock",
	"nats":           "github.com/interlock-go/lock/natslock",
	"natss":          "github.com/interlock-go/lock/natslock",
	"postgres":       "github.com/interlock-go/lock/pglock",
	"postgresql":     "github.com/interlock-go/lock/pglock",
}

// Register makes a driver available to lock.Open under a URL scheme. Drivers
// call it in init. It panics if another driver of the program has registered the scheme.
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if registry.open == nil {
		registry.open = map[string]Opener{}
	}
	if _, dup := registry.open[scheme]; dup || open == nil {
		panic("lock/backend: Register: scheme " + scheme + " registered twice, or with a nil Opener")
	}
	registry.open[scheme] = open
}

// Schemes returns the registered schemes in order.
func Schemes() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.open))
}

// Open finds the opener of u.Scheme and calls it. A parameter that the driver
// did not read is an error.
func Open(ctx context.Context, u *URL) (Backend, error) {
	registry.RLock()
	open := registry.open[u.Scheme]
	registry.RUnlock()
	if open == nil {
		registered := "none is"
		if s := Schemes(); len(s) > 0 {
			registered = strings.Join(s, ", ")
		}
		if pkg := drivers[u.Scheme]; pkg != "" {
			return nil, fmt.Errorf("%w URL scheme %q: its driver is not linked in, import _ %q (registered: %s)", ErrInvalid, u.Scheme, pkg, registered)
		}
		known := slices.DeleteFunc(slices.Sorted(maps.Keys(drivers)), func(s string) bool { return slices.Contains(Schemes(), s) })
		if len(known) > 0 {
			registered += "; not linked in: " + strings.Join(known, ", ")
		}
		return nil, fmt.Errorf("%w URL scheme %q: no such driver (registered: %s)", ErrInvalid, u.Scheme, registered)
	}
	b, err := open(ctx, u)
	if err == nil {
		if perr := u.Params.Err(); perr != nil {
			_ = b.Close(ctx) // nothing is held yet, and perr is the error that matters
			return nil, perr
		}
	}
	return b, err
}
