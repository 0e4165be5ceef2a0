package memcached_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/memcachelock"
)

func TestConformance(t *testing.T) {
	s := provision.NewMemcached(t, provision.Options{})
	t.Run(s.Flavour, func(t *testing.T) {
		conformance.Run(t, harness(t, s), suite.Keep(t))
	})
}

func harness(t *testing.T, s *provision.Server) conformance.Harness {
	base := s.URL()
	admin := memcache.New(s.Addr())
	t.Cleanup(func() { _ = admin.Close() })
	key := func(name string) string { return memcachelock.Key(memcachelock.DefaultPrefix, name) }
	return conformance.Harness{
		Name: s.Flavour,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, base) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, base+"/"+prefix)
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			p := provision.NewProxy(t, s.Addr())
			b, err := suite.Open(ctx, "memcached://"+p.Addr()+"?timeout=500ms")
			return b, suite.Link{T: t, Proxy: p}, err
		},
		Worker:         conformance.Self(base),
		ClockWorker:    provision.ClockWorker(t, conformance.Self(base)),
		OwnGoroutines:  suite.OwnGoroutines,
		StopServer:     func(context.Context) error { return s.Pause() },
		ResumeServer:   func(context.Context) error { return s.Resume() },
		RestartServer:  func(ctx context.Context) error { return errors.Join(s.Kill(), s.Restart(ctx)) },
		ServerCommands: func(ctx context.Context) (int64, error) { return commands(ctx, s.Addr()) },
		Budget: conformance.Budget{
			IdleHolderCommands: 8, HandOffCommands: 30, IdleWaiterCommands: 20, DeadProcess: backend.MaxProvisionalTTL,
		},
		Leftovers: func(_ context.Context, name string) ([]string, error) {
			item, err := admin.Get(key(name))
			if errors.Is(err, memcache.ErrCacheMiss) || err == nil && suite.FreeRecord(string(item.Value)) {
				return nil, nil // a free lock stays for the margin
			}
			return []string{key(name)}, err
		},
		ForeignHolder: func(_ context.Context, name string, ttl time.Duration) (func(context.Context) error, error) {
			if err := admin.Add(&memcache.Item{Key: key(name), Value: []byte("another client"), Expiration: int32(ttl/time.Second) + 2}); err != nil {
				return nil, fmt.Errorf("add %q: %w", key(name), err)
			}
			return func(context.Context) error { return admin.Delete(key(name)) }, nil
		},
		DestroyState: func(_ context.Context, name string) error { return admin.Delete(key(name)) },
		KeyOf:        key,
		GuardedWrite: func(_ context.Context, name string, token uint64) error {
			return guardedWrite(admin, "guarded:"+key(name), token)
		},
	}
}

// guardedWrite writes only with a token that is not lower than the highest seen.
func guardedWrite(admin *memcache.Client, key string, token uint64) error {
	for {
		item, err := admin.Get(key)
		if errors.Is(err, memcache.ErrCacheMiss) {
			err = admin.Add(&memcache.Item{Key: key, Value: strconv.AppendUint(nil, token, 10)})
			if errors.Is(err, memcache.ErrNotStored) {
				continue
			}
			return err
		}
		if err != nil {
			return err
		}
		highest, err := strconv.ParseUint(string(item.Value), 10, 64)
		if err != nil {
			return err
		}
		if token < highest {
			return errors.New("stale fencing token")
		}
		item.Value = strconv.AppendUint(nil, token, 10)
		if err := admin.CompareAndSwap(item); !errors.Is(err, memcache.ErrCASConflict) {
			return err
		}
	}
}

// commands returns how many commands the server has executed.
func commands(ctx context.Context, addr string) (int64, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("stats\r\n")); err != nil {
		return 0, err
	}
	var n int64
	for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != "END"; {
		word := strings.Fields(lines.Text())
		if len(word) == 3 && strings.HasPrefix(word[1], "cmd_") {
			count, err := strconv.ParseInt(word[2], 10, 64)
			if err != nil {
				return 0, err
			}
			n += count
		}
	}
	return n, nil
}
