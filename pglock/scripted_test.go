package pglock

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
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

// scripted is a backend of a server that gives these answers, one after the other.
func scripted(t *testing.T, answers ...answer) *Backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(pgproto3.NewBackend(conn, conn), answers)
	}()
	cfg, err := pgxpool.ParseConfig("postgres://u@" + l.Addr().String() + "/db?sslmode=disable&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		_ = l.Close()
		<-served
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

func serve(s *pgproto3.Backend, answers []answer) {
	if _, err := s.ReceiveStartupMessage(); err != nil {
		return
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
		a := answer{failed: "XX000"} // more than was expected
		if len(answers) > 0 {
			a, answers = answers[0], answers[1:]
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

// acquired answers a request to acquire.
func acquired(status, token string) answer {
	return answer{rows: [][]string{{status, "1000", "60000000", token, "p", "", "t", "", "", ""}}}
}
