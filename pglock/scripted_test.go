package pglock

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// reply is that of a scripted server to one statement.
type reply struct {
	rows   [][]string
	failed string        // error code in place of the end
	after  time.Duration // how long the statement takes
}

// renewed is the status of the answer that the lease of the attempt o was extended.
const renewed = "renewed"

// of returns the reply with one answer.
func of(status string) reply {
	owners := "{}"
	if status == renewed {
		owners = "{o}"
	}
	return reply{rows: [][]string{{"1", status, "1000", "7", "", "60000000", "0", "t", "f", "0", "", "", "0", "0", "", owners}}}
}

// columns are the types of an answer.
var columns = []uint32{
	pgtype.Int8OID, pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.BoolOID,
	pgtype.BoolOID, pgtype.Int8OID, pgtype.TextOID, pgtype.TextOID, pgtype.Int4OID, pgtype.Int4OID, pgtype.TextOID, pgtype.TextArrayOID,
}

// scripted returns a backend whose server gives these replies in turn, the last one again and again. Statements of the
// simple protocol, as LISTEN, always succeed. It may run in a synctest bubble.
func scripted(t *testing.T, script []reply) *Backend {
	t.Helper()
	var sent atomic.Int64
	next := func() reply {
		if len(script) == 0 {
			return reply{failed: "XX000"}
		}
		return script[min(int(sent.Add(1)), len(script))-1]
	}
	return serving(t, func(server net.Conn) { serve(pgproto3.NewBackend(server, server), next) })
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
	svc := newService(pool, o, sql)
	b := &Backend{Backend: queue.New(svc), svc: svc}
	svc.events = b.Backend
	t.Cleanup(svc.life.Stop) // before the pool is closed
	return b
}

func serve(s *pgproto3.Backend, next func() reply) {
	m, err := s.ReceiveStartupMessage()
	if _, ok := m.(*pgproto3.StartupMessage); err != nil || !ok {
		return // a cancel request
	}
	s.Send(&pgproto3.AuthenticationOk{})
	s.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for s.Flush() == nil {
		m, err := s.Receive()
		if err != nil {
			return
		}
		switch m.(type) {
		case *pgproto3.Query:
			s.Send(&pgproto3.CommandComplete{CommandTag: []byte("LISTEN")})
			s.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		case *pgproto3.Sync:
			r := next()
			time.Sleep(r.after)
			sendReply(s, r)
		}
	}
}

func sendReply(s *pgproto3.Backend, r reply) {
	s.Send(&pgproto3.ParseComplete{})
	s.Send(&pgproto3.BindComplete{})
	var d pgproto3.RowDescription
	for i := range columns {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{
			Name: []byte("c" + strconv.Itoa(i)), DataTypeOID: columns[i], DataTypeSize: -1, TypeModifier: -1,
		})
	}
	s.Send(&d)
	for _, row := range r.rows {
		var data pgproto3.DataRow
		for _, v := range row {
			data.Values = append(data.Values, []byte(v))
		}
		s.Send(&data)
	}
	if r.failed != "" {
		s.Send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: r.failed})
	} else {
		s.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	}
	s.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
}

func requestOf(owner string) backend.Request {
	return backend.Request{Key: "k", Owner: owner, TTL: time.Minute}
}

// renewOnce renews a grant by the service.
func renewOnce(ctx context.Context, b *Backend) error {
	return b.svc.Renew(ctx, []queue.Hold{{Key: "k", Owner: "o", TTL: time.Minute}})[0].Err
}
