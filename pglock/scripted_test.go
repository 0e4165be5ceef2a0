package pglock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
)

// answer is what a scripted server says to one statement.
type answer struct {
	rows   [][]string
	failed string // the code of what comes instead of the end
	before func() // is called when the statement has arrived
}

// scripted is a backend of a server that gives these answers, one after the other. It
// may be in a bubble of synctest.
func scripted(t *testing.T, answers ...answer) *Backend {
	t.Helper()
	cfg, err := pgxpool.ParseConfig("postgres://u@127.0.0.1/db?sslmode=disable&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	script := make(chan answer, len(answers))
	for _, a := range answers {
		script <- a
	}
	close(script)
	var served sync.WaitGroup
	cfg.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		served.Go(func() {
			defer server.Close()
			serve(pgproto3.NewBackend(server, server), script)
		})
		return client, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		served.Wait()
	})
	o := defaults()
	sql, err := newStatements(o.table)
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{pool: pool, opt: o, sql: sql, pooled: true, attempts: map[string]*attempt{}, settled: map[string]struct{}{}}
	b.life, b.end = context.WithCancel(t.Context())
	b.listener = newListener(b)
	return b
}

func serve(s *pgproto3.Backend, script <-chan answer) {
	m, err := s.ReceiveStartupMessage()
	if _, ok := m.(*pgproto3.StartupMessage); err != nil || !ok {
		return // it asks for the end of what it has given up
	}
	s.Send(&pgproto3.AuthenticationOk{})
	s.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for s.Flush() == nil {
		m, err := s.Receive()
		if err != nil {
			return
		}
		if _, ok := m.(*pgproto3.Sync); !ok {
			continue
		}
		a, ok := <-script
		if !ok {
			a.failed = "XX000" // more than was expected
		}
		if a.before != nil {
			a.before()
		}
		s.Send(&pgproto3.ParseComplete{})
		s.Send(&pgproto3.BindComplete{})
		var d pgproto3.RowDescription
		if len(a.rows) > 0 {
			for _, v := range a.rows[0] {
				oid := uint32(pgtype.TextOID)
				switch v {
				case "{}":
					oid = pgtype.TextArrayOID
				case "t", "f":
					oid = pgtype.BoolOID
				}
				if _, err := strconv.Atoi(v); err == nil {
					oid = pgtype.Int8OID
				}
				d.Fields = append(d.Fields, pgproto3.FieldDescription{Name: []byte("c"), DataTypeOID: oid, DataTypeSize: -1, TypeModifier: -1})
			}
		}
		s.Send(&d)
		for _, row := range a.rows {
			var r pgproto3.DataRow
			for _, v := range row {
				r.Values = append(r.Values, []byte(v))
			}
			s.Send(&r)
		}
		if a.failed != "" {
			s.Send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: a.failed})
		} else {
			s.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")})
		}
		s.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
}

func requestOf(n string) backend.Request {
	return backend.Request{Key: "k", Owner: n, TTL: time.Minute}
}

// TestUndoneAtCommit: the rows of a statement that the server undoes at its end are
// not counted with those of the next try.
func TestUndoneAtCommit(t *testing.T) {
	undone := answer{rows: [][]string{{"", ""}}, failed: "40001"}
	b := scripted(t, undone, answer{})
	g := b.newAttempt(requestOf("o"), false).grant(reply{sent: time.Now(), left: time.Minute})
	if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a renewal that was undone, and then found nothing: want ErrLost, got %v", err)
	}
	b = scripted(t, undone, answer{})
	g = b.newAttempt(requestOf("o"), false).grant(reply{sent: time.Now(), left: time.Minute})
	if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a release that was undone, and then found nothing: want ErrLost, got %v", err)
	}
	row := []string{`lock:k`, "1", "o", "", "1000", "0", "{}"}
	b = scripted(t, answer{rows: [][]string{row}, failed: "40001"}, answer{rows: [][]string{row}})
	if infos, err := b.rows(t.Context(), nil, nil, 9); err != nil || len(infos) != 1 || infos[0].Name != "k" {
		t.Errorf("a list whose first try was undone: want k once, got %+v, %v", infos, err)
	}
	b = scripted(t, answer{rows: [][]string{{"1", "o", "", "1000", "", "", "", ""}}, failed: "40001"}, answer{})
	if h, err := b.Break(t.Context(), "k"); err != nil || h != nil {
		t.Errorf("a break that was undone, and then found nobody: got %+v, %v", h, err)
	}
}

// TestNothingIsKeptOfTheLost: an attempt is forgotten however its grant ends.
func TestNothingIsKeptOfTheLost(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		ends   func(b *Backend, g *grant) bool
	}{
		"renewal of what is lost": {answer{}, func(_ *Backend, g *grant) bool {
			return errors.Is(g.Renew(t.Context(), time.Minute), backend.ErrLost)
		}},
		"release that failed": {answer{failed: "57014"}, func(_ *Backend, g *grant) bool { return g.Release(t.Context()) != nil }},
		"told of its loss": {answer{}, func(b *Backend, g *grant) bool {
			told := 0
			g.a.req.OnLost = func(error) { told++ }
			b.receive("l " + g.a.req.Owner)
			return told == 1
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, req := scripted(t, c.answer), requestOf("o")
			req.OnLost = func(error) {}
			g := b.newAttempt(req, false).grant(reply{sent: time.Now(), left: time.Minute})
			if len(b.attempts) != 1 {
				t.Fatalf("want the holder known, to be told of its loss, got %d", len(b.attempts))
			}
			if !c.ends(b, g) {
				t.Error("it does not end so")
			}
			if len(b.attempts) != 0 {
				t.Errorf("want nothing kept, got %d", len(b.attempts))
			}
		})
	}
}

// TestBrokenBeforeItIsTaken: a grant that is broken before Acquire has it is no loss.
// Who asks then may get the next one, and must keep it.
func TestBrokenBeforeItIsTaken(t *testing.T) {
	var b *Backend
	broken := func() { b.receive("l o") }
	refused := acquired("0", "7")
	late := acquired("1", "8")
	late.before = broken
	for name, c := range map[string]struct {
		pushed  []string
		answers []answer
	}{
		"pushed":    {[]string{"g o 8 3001000 3000000 6b", "l o"}, []answer{refused, acquired("1", "9")}},
		"asked for": {[]string{"g o 8 1001 3000000 6b"}, []answer{refused, late, acquired("1", "9")}}, // a push of which nothing is left
	} {
		t.Run(name, func(t *testing.T) {
			b = scripted(t, c.answers...)
			b.listener.up = true
			req := requestOf("o")
			var told atomic.Int64
			req.OnLost = func(error) { told.Add(1) }
			req.OnWait = func(*backend.LockedError) {
				for _, p := range c.pushed {
					b.receive(p)
				}
			}
			g, err := b.Acquire(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if g.Token() != 9 || told.Load() != 0 {
				t.Errorf("want the grant 9, after the broken one, and no word of a loss, got %d, told of %d", g.Token(), told.Load())
			}
			broken()
			if told.Load() != 1 {
				t.Errorf("that is broken too: want it told once, got %d", told.Load())
			}
		})
	}
}

// TestOvertaken: at the stricter isolation levels the server undoes what was overtaken
// while it waited for the row. A Lock goes on as long as its TTL, however often that
// is; all else keeps to the timeout.
func TestOvertaken(t *testing.T) {
	const pauses = 4 * time.Second // 250, each of 11 ms on average
	quick, slow := answer{failed: "40001"}, answer{failed: "40001", before: func() { time.Sleep(4 * time.Second) }}
	lock := func(ctx context.Context, b *Backend) error {
		b.listener.up = true
		g, err := b.Acquire(ctx, requestOf("o"))
		if err == nil && g.Token() != 7 {
			err = fmt.Errorf("token %d", g.Token())
		}
		return err
	}
	try := func(ctx context.Context, b *Backend) error { _, err := b.TryAcquire(ctx, requestOf("o")); return err }
	renew := func(ctx context.Context, b *Backend) error {
		return b.newAttempt(requestOf("o"), false).grant(reply{sent: time.Now(), left: time.Minute}).Renew(ctx, time.Minute)
	}
	for name, c := range map[string]struct {
		do        func(context.Context, *Backend) error
		first     answer
		times     int
		within    time.Duration // the context
		closed    bool          // when the second answer is on its way
		says      string        // the error
		uncertain bool
		took      time.Duration // but for pauses
	}{
		"renewal":                      {do: renew, first: quick, times: 250},
		"renewal, too long":            {do: renew, first: slow, times: 2, says: "no answer within 5s", uncertain: true, took: 5 * time.Second},
		"TryLock, too long":            {do: try, first: slow, times: 2, says: "no answer within 5s", uncertain: true, took: 5 * time.Second},
		"Lock":                         {do: lock, first: slow, times: 5, took: 20 * time.Second},
		"Lock, too long":               {do: lock, first: slow, times: 16, says: "40001", took: time.Minute},
		"Lock, until its context ends": {do: lock, first: slow, times: 5, within: 10 * time.Second, says: "deadline", uncertain: true, took: 10 * time.Second},
		"Lock, until Close":            {do: lock, first: slow, times: 5, closed: true, says: "closed", took: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := append(slices.Repeat([]answer{c.first}, c.times), acquired("1", "7"))
				var b *Backend
				if c.closed {
					script[1].before = func() { c.first.before(); b.end() }
				}
				b = scripted(t, script...)
				ctx := t.Context()
				if c.within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.within)
					defer cancel()
				}
				begun := time.Now()
				err := c.do(ctx, b)
				took := time.Since(begun)
				switch {
				case c.says == "" && err != nil:
					t.Errorf("want nil, got %v", err)
				case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || isUncertain(err) != c.uncertain):
					t.Errorf("want an error that says %q, uncertain: %v, got %v", c.says, c.uncertain, err)
				}
				if took < c.took || took > c.took+pauses {
					t.Errorf("want it after %v, got it after %v", c.took, took)
				}
			})
		})
	}
}

// acquired answers a request to acquire.
func acquired(status, token string) answer {
	return answer{rows: [][]string{{status, "1000", "60000000", token, "p", "", "t", "", "", ""}}}
}
