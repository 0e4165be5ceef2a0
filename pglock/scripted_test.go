package pglock

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
)

// answer is the reply of a scripted server to one statement.
type answer struct {
	rows   [][]string
	failed string // error code in place of the end
	before func() // called when the statement has arrived
}

// rolledBackAnswer returns a with its statement rolled back at the commit.
func rolledBackAnswer(a answer) answer {
	a.failed = "40001"
	return a
}

// secretAhead is the secret of the holder in the reply of acquired.
const secretAhead = "5ec4e7"

// acquired is the reply to a request to acquire.
func acquired(status, token string) answer {
	return answer{rows: [][]string{{status, "1000", "60000000", token, "p", "", hashOf(secretAhead), "f", "", "f"}}}
}

// scripted returns a backend whose server gives these answers in turn. Statements of the
// simple protocol, as LISTEN, always succeed. It may run in a synctest bubble.
func scripted(t *testing.T, answers ...answer) *Backend {
	t.Helper()
	script := make(chan answer, len(answers))
	for _, a := range answers {
		script <- a
	}
	close(script)
	return serving(t, func(server net.Conn) { serve(pgproto3.NewBackend(server, server), script) })
}

// serving returns a backend each of whose connections is served by handle.
func serving(t *testing.T, handle func(server net.Conn)) *Backend {
	t.Helper()
	cfg, err := pgxpool.ParseConfig("postgres://u@127.0.0.1/db?sslmode=disable&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	cfg.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		served.Go(func() {
			defer server.Close()
			handle(server)
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
	o.pooled.Store(true)
	sql, err := newStatements(o.table)
	if err != nil {
		t.Fatal(err)
	}
	return newBackend(t.Context(), pool, o, sql)
}

func serve(s *pgproto3.Backend, script <-chan answer) {
	m, err := s.ReceiveStartupMessage()
	if _, ok := m.(*pgproto3.StartupMessage); err != nil || !ok {
		return // a cancel request
	}
	s.Send(&pgproto3.AuthenticationOk{})
	s.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for statements := 0; s.Flush() == nil; {
		m, err := s.Receive()
		if err != nil {
			return
		}
		switch m.(type) {
		case *pgproto3.Query:
			s.Send(&pgproto3.CommandComplete{CommandTag: []byte("LISTEN")})
			s.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		case *pgproto3.Execute:
			statements++
		case *pgproto3.Sync:
			for ; statements > 1; statements-- { // of a transaction; the answer is that of the last one
				s.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")})
			}
			statements = 0
			a, ok := <-script
			if !ok {
				a.failed = "XX000" // the test expects fewer statements
			}
			if a.before != nil {
				a.before()
			}
			sendAnswer(s, a)
		}
	}
}

func sendAnswer(s *pgproto3.Backend, a answer) {
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

func requestOf(owner string) backend.Request {
	return backend.Request{Key: "k", Owner: owner, TTL: time.Minute}
}

// grantFor returns a grant of req that ends in left.
func grantFor(b *Backend, req backend.Request, left time.Duration) *grant {
	return b.newAttempt(req, holding).grant(reply{sent: time.Now(), holder: backend.Holder{Left: left}})
}
