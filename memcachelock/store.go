package memcachelock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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
type store struct {
	*Backend
	held bool // for renewals and releases
}

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
	key := b.key(name)
	n := b.nodes.node(key)
	err := b.do(ctx, n, b.held, func() (err error) {
		item, err = n.client.Get(key)
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

// timer returns the key of the item that measures a minimum hold. No lock has it: what follows "#" is no hash.
func (b store) timer(name string) string {
	sum := sha256.Sum256([]byte(name))
	return b.opt.prefix + ":#kept-" + hex.EncodeToString(sum[:])
}

// Start implements record.Timer by an item that the server removes after d.
func (b store) Start(ctx context.Context, name string, d time.Duration) error {
	item := &memcache.Item{Key: b.timer(name), Value: []byte("kept"), Expiration: expiration(d)}
	n := b.nodes.node(item.Key)
	return b.do(ctx, n, b.held, func() error { return n.client.Set(item) })
}

// Elapsed implements record.Timer. The server does not return a time, only whether it is over.
func (b store) Elapsed(ctx context.Context, name string, _ record.Item) (time.Duration, error) {
	n := b.nodes.node(b.timer(name))
	err := b.do(ctx, n, b.held, func() error {
		_, err := n.client.Get(b.timer(name))
		return err
	})
	if errors.Is(err, memcache.ErrCacheMiss) {
		return maxTTL, nil
	}
	return 0, err
}

// Write returns no version: the server does not return it. A write that is repeated is executed once: the version is
// another one then.
func (b store) Write(ctx context.Context, name string, value []byte, version string, ttl time.Duration) (string, error) {
	item := &memcache.Item{Key: b.key(name), Value: value, Expiration: expiration(ttl + b.opt.margin)}
	if version != "" {
		var err error
		if item.CasID, err = strconv.ParseUint(version, 10, 64); err != nil {
			return "", backend.NotExecuted(err)
		}
	}
	n := b.nodes.node(item.Key)
	sent := 0
	return "", b.do(ctx, n, b.held, func() error {
		var err error
		sent++
		if version == "" {
			err = n.client.Add(item)
		} else {
			err = n.client.CompareAndSwap(item)
		}
		switch {
		case !isRefusal(err):
			return err
		case sent == 1:
			return record.ErrChanged
		}
		return n.written(item)
	})
}

// written returns nil if the record is what a write that was sent twice has written. No other write has that value.
func (n *node) written(item *memcache.Item) error {
	got, err := n.client.Get(item.Key)
	if err == nil && bytes.Equal(got.Value, item.Value) {
		return nil
	}
	return errors.Join(errors.New("a repeated write was refused, and the first one had no answer"), err)
}

// expiration returns a relative time for the server, rounded up, and more by the second by
// which the clock of the server may lag.
func expiration(d time.Duration) int32 {
	d = min(d+2*time.Second-time.Nanosecond, month)
	return int32(d / time.Second)
}

// do makes an exchange with a server. The client library takes no context: if ctx ends first, the exchange
// goes on until its timeout, and Close waits for it.
func (b *Backend) do(ctx context.Context, n *node, held bool, request func() error) error {
	if err := b.exchanges.Begin(ctx); err != nil {
		return err
	}
	end, err := n.begin(ctx, held)
	if err != nil {
		b.exchanges.End()
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer b.exchanges.End()
		defer end()
		done <- n.send(ctx, request)
	}()
	select {
	case err := <-done:
		if err == nil || errors.Is(err, record.ErrChanged) || errors.Is(err, memcache.ErrCacheMiss) {
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

// isRefusal reports whether the server has refused a write because the record has another version.
func isRefusal(err error) bool {
	return errors.Is(err, memcache.ErrNotStored) || errors.Is(err, memcache.ErrCASConflict) || errors.Is(err, memcache.ErrCacheMiss)
}

// classify marks the errors of connections that were not opened, and of requests that the server has refused.
func classify(err error) error {
	err = fmt.Errorf("memcached: %w", err)
	if notOpened(err) || refusedByServer(err) {
		return backend.NotExecuted(err)
	}
	return err
}

// refusedByServer reports whether the server says that it has not stored an item, for which the client library has no
// error: it is full, or has no more connections.
func refusedByServer(err error) bool {
	text := err.Error()
	return strings.Contains(text, `: "SERVER_ERROR out of memory`) || strings.Contains(text, `: "ERROR`)
}
