package redislock

import "github.com/interlock-go/lock/redislock/internal/protocol"

// DefaultPrefix is the default prefix of keys.
const DefaultPrefix = protocol.DefaultPrefix

// Key returns the key of the lock of that name, which another client may SET.
func Key(prefix, name string) string { return protocol.LockKey(prefix, name) }
