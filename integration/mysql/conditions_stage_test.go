package mysql_test

import (
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// stage is a server, a backend, and a lock whose row the test changes directly: leases expire,
// clocks are set and processes end without waiting.
type stage struct {
	*testing.T
	s     *provision.Server
	admin *sql.DB
	b     backend.Backend
	key   string
}

const serverNow = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"

// row updates the row of the key.
func (s *stage) row(set string, args ...any) {
	s.Helper()
	if !updates(s.T, s.admin, "UPDATE interlock SET ttl=ttl+1,"+set+" WHERE name=? AND place=0", append(args, s.name())...) {
		s.Fatalf("set %s: no such row", set)
	}
}

func (s *stage) name() []byte { return []byte(mysqllock.Key(mysqllock.DefaultPrefix, s.key)) }

func (s *stage) request() backend.Request {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return backend.Request{Key: s.key, Owner: hex.EncodeToString(id[:]), TTL: time.Hour}
}

func (s *stage) no(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) try() backend.Grant {
	s.Helper()
	g, err := s.b.TryAcquire(s.Context(), s.request())
	s.no(err)
	return g
}

func (s *stage) refused(what string, b backend.Backend, req backend.Request, want error) {
	s.Helper()
	if _, err := b.TryAcquire(s.Context(), req); !errors.Is(err, want) {
		s.Errorf("%s: want %v, got %v", what, want, err)
	}
}

// read returns the owner in the row, expired or not, the waiters, and the TTL of the grant.
func (s *stage) read() (owner, waiters string, ttl time.Duration) {
	s.Helper()
	var us int64
	s.no(s.admin.QueryRow("SELECT owner, (SELECT COALESCE(GROUP_CONCAT(owner ORDER BY place), '') FROM interlock WHERE name=l.name AND place>0), expires-granted FROM interlock l WHERE name=? AND place=0", s.name()).
		Scan(&owner, &waiters, &us))
	return owner, waiters, time.Duration(us) * time.Microsecond
}

func (s *stage) lost(what string, err error) {
	s.Helper()
	if !errors.Is(err, backend.ErrLost) {
		s.Errorf("%s: want ErrLost, got %v", what, err)
	}
}

func (s *stage) expire() { s.row("expires=" + serverNow + "-1000000") }

// enqueue puts an attempt of a process that does not exist into the queue.
func (s *stage) enqueue() backend.Request {
	req := s.request()
	s.row("last=last+1")
	exec(s.T, s.admin, fmt.Sprintf("INSERT INTO interlock (name,place,owner,process,ttl,granted) SELECT name,last,'%s','none',%d,%s FROM interlock WHERE name='%s' AND place=0", req.Owner, req.TTL.Microseconds(), serverNow, s.name()))
	return req
}

// acquire calls Acquire in the background and returns when the attempt is in the queue.
func (s *stage) acquire(b backend.Backend, req backend.Request) <-chan backend.Grant {
	s.Helper()
	waits, got := make(chan struct{}, 1), make(chan backend.Grant, 1)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		g, err := b.(backend.Waiter).Acquire(s.Context(), req)
		if err != nil {
			s.Errorf("Acquire: %v", err)
		}
		got <- g
	}()
	select {
	case <-waits:
	case <-time.After(bound):
		s.Fatalf("not in the queue within %v", bound)
	}
	return got
}

func (s *stage) granted(got <-chan backend.Grant) backend.Grant {
	s.Helper()
	select {
	case g := <-got:
		if g == nil {
			s.FailNow()
		}
		return g
	case <-time.After(bound):
		s.Fatalf("not granted within %v", bound)
	}
	return nil
}

// claim renews a grant as soon as there is one, because it is provisional. It returns where the grant comes then.
func (s *stage) claim(got <-chan backend.Grant) <-chan backend.Grant {
	claimed := make(chan backend.Grant, 1)
	go func() {
		g := <-got
		if g != nil {
			if err := g.Renew(s.Context(), time.Hour); err != nil {
				s.Errorf("Renew: %v", err)
			}
		}
		claimed <- g
	}()
	return claimed
}

// behindProxy opens a backend whose connections go through a proxy.
func (s *stage) behindProxy(params string) (backend.Backend, *provision.Proxy) {
	p := provision.NewProxy(s, s.s.Addr())
	return openRaw(s.T, strings.Replace(s.s.URL(), s.s.Addr(), p.Addr(), 1)+params), p
}
