package pglock

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/interlock-go/lock/backend"
)

// Ways in which a pooler treats a notification.
const (
	whileIdle = iota // it arrives while the listening connection is idle
	withReply        // it arrives with the next reply to the listening connection
	never
)

// notifyingServer is a server behind a pooler, which treats notifications in these ways
// in turn.
type notifyingServer struct {
	mu       sync.Mutex
	ways     []int
	listener chan<- []pgproto3.BackendMessage // to the listening connection
	pending  []pgproto3.BackendMessage        // to send with the next reply to it
}

func (s *notifyingServer) serve(conn net.Conn) {
	p := pgproto3.NewBackend(conn, conn)
	if m, err := p.ReceiveStartupMessage(); err != nil || m == nil {
		return
	}
	out := make(chan []pgproto3.BackendMessage, 10)
	defer close(out)
	go func() { // so that a client that does not read blocks nothing else
		for messages := range out {
			for _, m := range messages {
				p.Send(m)
			}
			_ = p.Flush() // the reader notices it
		}
	}()
	ready := &pgproto3.ReadyForQuery{TxStatus: 'I'}
	out <- []pgproto3.BackendMessage{&pgproto3.AuthenticationOk{}, ready}
	for {
		m, err := p.Receive()
		if err != nil {
			return
		}
		s.mu.Lock()
		switch m := m.(type) {
		case *pgproto3.Query:
			if strings.HasPrefix(m.String, "LISTEN") {
				s.listener = out
			}
			out <- append(s.pending, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")}, ready)
			s.pending = nil
		case *pgproto3.Bind:
			s.notify(&pgproto3.NotificationResponse{Channel: string(m.Parameters[0]), Payload: string(m.Parameters[1])})
		case *pgproto3.Sync:
			out <- []pgproto3.BackendMessage{&pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, &pgproto3.RowDescription{}, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")}, ready}
		}
		s.mu.Unlock()
	}
}

func (s *notifyingServer) notify(n *pgproto3.NotificationResponse) {
	way := never
	if len(s.ways) > 0 {
		way, s.ways = s.ways[0], s.ways[1:]
	}
	switch way {
	case whileIdle:
		s.listener <- []pgproto3.BackendMessage{n}
	case withReply:
		s.pending = []pgproto3.BackendMessage{n}
	}
}

// TestTryListening: waiters are notified only if two notifications in a row arrive
// while the listening connection is idle.
func TestTryListening(t *testing.T) {
	for name, c := range map[string]struct {
		ways []int
		wake backend.Wake
	}{
		"no pooler":                       {[]int{whileIdle, whileIdle}, backend.WakePush},
		"slow at first":                   {[]int{withReply, withReply, whileIdle, whileIdle}, backend.WakePush},
		"transaction pooler":              {[]int{never}, backend.WakePoll},
		"right session once":              {[]int{whileIdle, never}, backend.WakePoll},
		"right session for the reply":     {[]int{withReply, never}, backend.WakePoll},
		"right session in between":        {[]int{whileIdle, withReply, whileIdle, never}, backend.WakePoll},
		"proofs are not counted together": {[]int{whileIdle, withReply, whileIdle, withReply, never}, backend.WakePoll},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &notifyingServer{ways: c.ways}
				b := serving(t, s.serve)
				if err := b.svc.tryListening(); err != nil {
					t.Fatal(err)
				}
				if got := b.Capabilities().Wake; got != c.wake {
					t.Errorf("wake: want %v, got %v", c.wake, got)
				}
				if len(s.ways) > 0 {
					t.Errorf("want all notifications sent, got %d fewer", len(s.ways))
				}
			})
		})
	}
}

// TestListenConfigOfAnotherServer: with an explicit address to listen at, missing
// notifications are an error.
func TestListenConfigOfAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t, (&notifyingServer{}).serve)
		b.svc.opt.direct = b.svc.pool.Config().ConnConfig
		if err := b.svc.tryListening(); !errors.Is(err, errNotDelivered) || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("want an error that names the address, got %v", err)
		}
	})
}
