package zookeeper_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/zklock"
)

// budget is that of a server and of an ensemble.
var budget = conformance.Budget{WakesPerRelease: 2, HandOffCommands: 7, IdleHolderCommands: 4, IdleWaiterCommands: 4, DeadProcess: backend.MaxProvisionalTTL}

// harness returns the harness of a single server, which the suite may stop and restart.
func harness(t *testing.T, s *provision.Server) conformance.Harness {
	count := newCounter(t, s.Addr())
	base := "zk://" + count.addr()
	h := conformance.Harness{
		Name: s.Flavour,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, base) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, suite.WithParams(base, map[string]string{"prefix": prefix}))
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			p := provision.NewProxy(t, s.Addr())
			b, err := suite.Open(ctx, suite.WithParams("zk://"+p.Addr(), map[string]string{"dial_timeout": "1s"}))
			return b, suite.Link{T: t, Proxy: p}, err
		},
		Worker:            conformance.Self(base),
		ClockWorker:       provision.ClockWorker(t, conformance.Self(base)),
		OwnGoroutines:     suite.OwnGoroutines,
		StopServer:        func(context.Context) error { return s.Pause() },
		ResumeServer:      func(context.Context) error { return s.Resume() },
		RestartServer:     func(ctx context.Context) error { return errors.Join(s.Kill(), s.Restart(ctx)) },
		RestartKeepsLocks: true,
		Budget:            budget,
		ServerCommands:    func(context.Context) (int64, error) { return count.total(), nil },
	}
	h.ExpireSession = func(ctx context.Context, b backend.Backend) error { return expire(ctx, b, 2*time.Second, count) }
	inspectHooks(t, &h, []string{s.Addr()})
	return h
}

// admin returns a connection apart from the driver, which the end of the test closes.
func admin(t testing.TB, addrs []string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	return conn
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func node(name string) string { return zklock.Node("", zklock.DefaultPrefix, name) }

// inspectHooks adds the hooks that read and change what is stored.
func inspectHooks(t *testing.T, h *conformance.Harness, addrs []string) {
	conn := admin(t, addrs)
	h.KeyOf = node
	// the lock's own node is removed by the server some time after its last child
	h.Leftovers = func(_ context.Context, name string) ([]string, error) {
		_, _ = conn.Sync("/")
		nodes, _, err := conn.Children(node(name))
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return nodes, err
	}
	h.DestroyState = func(_ context.Context, name string) error { return deleteTree(conn, node(name)) }
	h.KeepsFence = true // the server's transaction numbers
	h.GuardedWrite = func(_ context.Context, name string, token uint64) error { return guardedWrite(conn, name, token) }
}

func deleteTree(conn *zk.Conn, dir string) error {
	for {
		nodes, _, err := conn.Children(dir)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if err := conn.Delete(dir+"/"+n, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
		err = conn.Delete(dir, -1)
		if !errors.Is(err, zk.ErrNotEmpty) {
			return err
		}
	}
}

// expire closes the session of a backend from outside: another connection takes it over, as
// a client that reconnects does, and closes it.
func expire(ctx context.Context, b backend.Backend, ttl time.Duration, count *counter) error {
	conn, err := b.(*zklock.Backend).Client(ctx, ttl)
	if err != nil {
		return err
	}
	id := conn.SessionID()
	count.mu.Lock()
	password := count.passwords[id]
	count.mu.Unlock()
	return closeSession(ctx, count.upstream, id, password)
}

// closeSession returns when the session has ended. It tries again and again, since the
// client resumes its session as soon as it has lost its connection.
func closeSession(ctx context.Context, addr string, id int64, password []byte) error {
	for {
		got, err := takeOver(ctx, addr, id, password)
		switch {
		case err == nil && got == 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("end session %x: %w: %w", id, ctx.Err(), err)
		}
	}
}

// takeOver resumes a session and closes it. It returns the id of the session, zero if the
// server has none of that id.
func takeOver(ctx context.Context, addr string, id int64, password []byte) (int64, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	hello := binary.BigEndian.AppendUint32(nil, 44)
	hello = append(hello, make([]byte, 12)...)
	hello = binary.BigEndian.AppendUint32(hello, 10_000)
	hello = binary.BigEndian.AppendUint64(hello, uint64(id))
	hello = binary.BigEndian.AppendUint32(hello, 16)
	hello = append(hello, password...)
	bye := []byte{0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5}
	if _, err := c.Write(append(hello, bye...)); err != nil {
		return 0, err
	}
	reply := make([]byte, 4+36)
	if _, err := io.ReadFull(c, reply); err != nil {
		return 0, err
	}
	got := int64(binary.BigEndian.Uint64(reply[12:]))
	if got != 0 {
		_, _ = io.ReadFull(c, reply[:4]) // the end of the session, or of the connection
	}
	return got, nil
}

// guardedWrite writes with a token, unless a higher one was used before.
func guardedWrite(conn *zk.Conn, name string, token uint64) error {
	path := "/guarded-" + strings.ReplaceAll(name, "/", "_")
	for {
		data, stat, err := conn.Get(path)
		if errors.Is(err, zk.ErrNoNode) {
			if _, err = conn.Create(path, []byte("0"), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err == nil || errors.Is(err, zk.ErrNodeExists) {
				continue
			}
		}
		if err != nil {
			return err
		}
		seen, err := strconv.ParseUint(string(data), 10, 64)
		if err != nil {
			return err
		}
		if token < seen {
			return fmt.Errorf("stale fencing token %d, %d was used before", token, seen)
		}
		_, err = conn.Set(path, strconv.AppendUint(nil, token, 10), stat.Version)
		if !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
	}
}
