package memcachelock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

const (
	maxKey = 250 // bytes, by the protocol
	// month is the longest relative time: what is longer is an absolute one for the server.
	month = 30 * 24 * time.Hour
)

// store implements record.Store.
type store struct{ *Backend }

// DefaultPrefix is the first part of all keys, unless WithPrefix or the URL sets another one.
const DefaultPrefix = "lock"

// Key returns the key of a lock. A name that the protocol does not allow, is too long or looks
// like a hash is hashed.
func Key(prefix, name string) string {
	key := prefix + ":" + name
	if len(key) <= maxKey && !strings.HasPrefix(name, "#") && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 127 }) {
		return key
	}
	sum := sha256.Sum256([]byte(name))
	return prefix + ":#" + hex.EncodeToString(sum[:])
}

func (b store) key(name string) string { return Key(b.opt.prefix, name) }

func (b store) Read(ctx context.Context, name string) (record.Item, error) {
	var item *memcache.Item
	err := b.do(ctx, func() (err error) {
		item, err = b.client.Get(b.key(name))
		return err
	})
	switch {
	case errors.Is(err, memcache.ErrCacheMiss):
		return record.Item{}, nil
	case err != nil:
		return record.Item{}, err
	}
	return record.Item{Value: item.Value, Version: strconv.FormatUint(item.CasID, 10)}, nil
}

// Write returns no version: the server does not return it.
func (b store) Write(ctx context.Context, name string, value []byte, version string, ttl time.Duration) (string, error) {
	item := &memcache.Item{Key: b.key(name), Value: value, Expiration: expiration(ttl + b.opt.margin)}
	return "", b.do(ctx, func() error {
		var err error
		if version == "" {
			err = b.client.Add(item)
		} else {
			if item.CasID, err = strconv.ParseUint(version, 10, 64); err != nil {
				return backend.NotExecuted(err)
			}
			err = b.client.CompareAndSwap(item)
		}
		if errors.Is(err, memcache.ErrNotStored) || errors.Is(err, memcache.ErrCASConflict) ||
			errors.Is(err, memcache.ErrCacheMiss) {
			return record.ErrChanged
		}
		return err
	})
}

// expiration returns a relative time for the server, rounded up, and more by the second by
// which the clock of the server may lag.
func expiration(d time.Duration) int32 {
	d = min(d+2*time.Second-time.Nanosecond, month)
	return int32(d / time.Second)
}

// do makes an exchange. The client library takes no context: if ctx ends first, the exchange
// goes on until its timeout, and Close waits for it.
func (b *Backend) do(ctx context.Context, exchange func() error) error {
	if err := b.exchanges.Begin(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer b.exchanges.End()
		done <- exchange()
	}()
	select {
	case err := <-done:
		if err == nil || isReply(err) {
			return err
		}
		if end := ctx.Err(); end != nil {
			err = fmt.Errorf("%w: %w", err, end)
		}
		return classify(err)
	case <-ctx.Done():
		return fmt.Errorf("memcached: no answer yet: %w", ctx.Err())
	}
}

// isReply reports whether the server has answered.
func isReply(err error) bool {
	return errors.Is(err, record.ErrChanged) || errors.Is(err, memcache.ErrCacheMiss)
}

// classify marks the errors of connections that were not opened: nothing was sent.
func classify(err error) error {
	err = fmt.Errorf("memcached: %w", err)
	var timeout *memcache.ConnectTimeoutError
	var op *net.OpError
	if errors.Is(err, errDial) || errors.As(err, &timeout) || errors.As(err, &op) && op.Op == "dial" {
		return backend.NotExecuted(err)
	}
	return err
}
