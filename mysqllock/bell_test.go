package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A name that was taken for an attempt that left the row while the answer was on its
// way is freed, by whoever uses the anchor: nobody else would ever do it.
func TestNameTakenTooLate(t *testing.T) {
	const owner = "0123456789abcdef0123456789abcdef"
	for name, c := range map[string]struct {
		leaves, earlier bool // earlier: before anything was asked, so that the request is refused
		noted, freed    bool
	}{
		"stays":                         {noted: true},
		"leaves while asking":           {leaves: true, freed: true},
		"left before, by another's way": {leaves: true, earlier: true, noted: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newBell(&Backend{table: table{name: "t"}}, "db", true, 1, 1)
			a := &anchor{turn: make(chan struct{}, 1)} // its turn is taken
			if c.earlier {
				l.ring(owner)
			}
			first, second := l.ask(owner), l.ask(owner) // an answer was not waited for
			first()
			if c.leaves && !c.earlier {
				l.ring(owner)
			}
			l.took(owner, a)
			second()
			if _, noted := l.names[owner]; noted != c.noted {
				t.Errorf("want the name noted: %v, got %v", c.noted, noted)
			}
			if freed := slices.Contains(a.late, owner); freed != c.freed {
				t.Errorf("want the name freed after its use: %v, got %v", c.freed, freed)
			}
			if len(l.asks) != 0 {
				t.Errorf("want nothing kept of requests that were answered, got %d", len(l.asks))
			}
		})
	}
}

// At a full server the bell opens nothing for a while, longer each time that it was
// full again as soon as the bell was back, and ends what waits.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBell(&Backend{table: table{name: "t"}}, "db", true, 1, 1)
		stopped := false
		l.keys["k"] = &watch{running: true, stop: func() { stopped = true }}
		l.keys["idle"] = &watch{}
		for _, c := range []struct{ after, want time.Duration }{
			{0, time.Second},
			{time.Second / 2, time.Second}, // others were refused meanwhile
			{2 * time.Second, 2 * time.Second},
			{3 * time.Second, 4 * time.Second},
			{40 * time.Second, 8 * time.Second},
			{10 * time.Second, 16 * time.Second},
			{20 * time.Second, 32 * time.Second},
			{40 * time.Second, time.Minute},
			{70 * time.Second, time.Minute},
			{3 * time.Minute, time.Second},
		} {
			time.Sleep(c.after)
			stopped = false
			if a := l.makeRoom(t.Context()); a != nil {
				t.Error("an anchor, of none")
			}
			if watch, anchor := time.Until(l.noWatch), time.Until(l.noAnchor); watch != c.want || anchor != c.want {
				t.Errorf("refused %v after the last time: want nothing opened for %v, got %v and %v", c.after, c.want, watch, anchor)
			}
			if !stopped {
				t.Error("want the watch stopped")
			}
		}
	})
}

// listed is a server that says which statements it was sent, and fails some.
type listed struct {
	sent  chan string
	fails string // what begins so
}

func (s *listed) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *listed) Driver() driver.Driver                        { return nil }
func (s *listed) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (s *listed) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (s *listed) Close() error                                 { return nil }

func (s *listed) ExecContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Result, error) {
	s.sent <- q
	if s.fails != "" && strings.HasPrefix(q, s.fails) {
		return nil, errors.New("no answer")
	}
	return driver.RowsAffected(0), nil
}

// Names that an anchor was to free when it broke are freed by the end of its session:
// the server may not know that it is over.
func TestNameOfBrokenAnchor(t *testing.T) {
	const owner = "0123456789abcdef0123456789abcdef"
	for name, c := range map[string]struct {
		fails string
		err   error
	}{
		"its use broke it":         {err: errors.New("no answer")},
		"it broke when freeing it": {fails: "DO 0,RELEASE_LOCK("},
	} {
		t.Run(name, func(t *testing.T) {
			server := &listed{sent: make(chan string, 9), fails: c.fails}
			db := sql.OpenDB(server)
			defer db.Close()
			b := &Backend{db: db, opt: defaults(), table: table{name: "t"}, life: t.Context()}
			l := newBell(b, "db", true, 1, 1)
			b.bell = l
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a := &anchor{conn: conn, turn: make(chan struct{}, 1)} // its turn is taken
			l.open, l.names[owner] = []*anchor{a}, a
			l.ring(owner)
			l.back(a, c.err)
			b.wg.Wait()
			close(server.sent)
			last := ""
			for last = range server.sent {
			}
			if want := "KILL IS_USED_LOCK(" + l.name(owner) + ")"; last != want {
				t.Errorf("want the last statement to be %s, got %q", want, last)
			}
		})
	}
}
