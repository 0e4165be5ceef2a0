package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
)

// rows is a server that executes renewals of the grants that it has.
type rows struct {
	mu         sync.Mutex
	has        map[string]bool // by owner id, as a literal
	locked     map[string]bool
	rollBacks  int    // the number of batches to roll back
	failed     error  // of each batch
	executing  func() // is called by each statement, unless it is nil
	statements []int  // the number of rows of each
}

func (r *rows) Connect(context.Context) (driver.Conn, error) { return conn{rows: r}, nil }
func (r *rows) Driver() driver.Driver                        { return nil }

type conn struct {
	driver.Conn
	rows *rows
}

func (c conn) Close() error { return nil }

func (c conn) ExecContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Result, error) {
	time.Sleep(100 * time.Millisecond)
	r := c.rows
	if r.executing != nil {
		r.executing()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	one := !strings.Contains(q, "SKIP LOCKED")
	asked, found := 0, 0
	where, _, _ := strings.Cut(q, "m STRAIGHT_JOIN")
	if _, in, batch := strings.Cut(where, ") IN ("); batch {
		in, _, _ = strings.Cut(in, "))")
		for tuple := range strings.SplitSeq(in, "),(") {
			if values := strings.Count(tuple, ",") + 1; values != 3 {
				return nil, &mysql.MySQLError{Number: 1241, Message: "Operand should contain 3 column(s)"}
			}
		}
	}
	for owner, has := range r.has {
		if strings.Contains(where, owner) {
			asked++
			if has && (one || !r.locked[owner]) {
				found++
			}
		}
	}
	r.statements = append(r.statements, asked)
	switch {
	case one:
	case r.rollBacks > 0:
		r.rollBacks--
		return nil, &mysql.MySQLError{Number: errDeadlock}
	case r.failed != nil:
		return nil, r.failed
	}
	return driver.RowsAffected(found), nil
}

// TestBatch: the server does not say which rows it found, so a batch of which some are
// missing is divided, and in the end its grants are renewed one by one.
func TestBatch(t *testing.T) {
	for name, c := range map[string]struct {
		of           int
		lost, locked []int
		rollBacks    int
		failed       error
		says         string
		most         int // statements
	}{
		"nothing":                 {},
		"one":                     {of: 1, most: 1},
		"all":                     {of: 256, most: 1},
		"more than fit":           {of: 300, most: 2},
		"one lost":                {of: 256, lost: []int{7}, most: 20},
		"one locked":              {of: 256, locked: []int{255}, most: 20},
		"some of each":            {of: 256, lost: []int{0, 100}, locked: []int{101, 230}, most: 70},
		"many lost":               {of: 64, lost: []int{1, 3, 5, 7, 9, 11, 13, 15, 17}, most: 65},
		"all lost":                {of: 3, lost: []int{0, 1, 2}, most: 4},
		"rolled back":             {of: 256, rollBacks: 1, most: 3},
		"rolled back, again":      {of: 4, rollBacks: 3, most: 7},
		"failed":                  {of: 20, failed: &mysql.MySQLError{Number: errReadOnly}, says: "primary", most: 3}, // over three connections
		"a server without it":     {of: 20, failed: &mysql.MySQLError{Number: errSyntax}, says: errors.ErrUnsupported.Error(), most: 1},
		"a server that waits":     {of: 3, failed: &mysql.MySQLError{Number: errLockWait}, most: 4},
		"a reset connection":      {of: 20, failed: errors.New("connection reset"), says: backend.ErrUncertain.Error(), most: 1},
		"a session that is ended": {of: 20, failed: &mysql.MySQLError{Number: errKilled}, says: backend.ErrUncertain.Error(), most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rows{has: map[string]bool{}, locked: map[string]bool{}, rollBacks: c.rollBacks, failed: c.failed}
				b := &Backend{db: sql.OpenDB(r), opt: defaults(), table: table{name: "t"}, acquiring: make(chan struct{}, 8)}
				b.life, b.end = context.WithCancel(t.Context())
				defer b.db.Close()
				var all []backend.Renewal
				for i := range c.of {
					r.has[lit(ownerOf(i))] = true
					g := &grant{b: b, req: backend.Request{Key: fmt.Sprint("k", i), Owner: ownerOf(i)}}
					all = append(all, backend.Renewal{Grant: g, TTL: time.Duration(i+1) * time.Minute})
				}
				lost := map[int]bool{}
				for _, i := range c.lost {
					lost[i], r.has[lit(ownerOf(i))] = true, false
				}
				for _, i := range c.locked {
					r.locked[lit(ownerOf(i))] = true
				}
				begun := time.Now()
				for i, err := range b.RenewBatch(t.Context(), all) {
					until := all[i].Grant.Until().Sub(begun)
					switch {
					case c.says != "":
						if err == nil || !strings.Contains(err.Error(), c.says) || !all[i].Grant.Until().IsZero() {
							t.Errorf("%d: want an error that says %q, got %v, trusted for %v", i, c.says, err, until)
						}
					case lost[i]:
						if !errors.Is(err, backend.ErrLost) {
							t.Errorf("%d: want ErrLost, got %v", i, err)
						}
					default:
						// counted from before the last statement, which took 100 ms
						if most := all[i].TTL + time.Since(begun) - 100*time.Millisecond; err != nil || until < all[i].TTL || until > most {
							t.Errorf("%d: want it renewed for %v from the request on, got %v, %v", i, all[i].TTL, until, err)
						}
					}
				}
				if n := len(r.statements); n > c.most || c.of > 0 && n == 0 {
					t.Errorf("want at most %d statements, got %d, of %v", c.most, n, r.statements)
				}
			})
		})
	}
}

// TestBatchBesideDowngrade: a downgrade begins while a batch is renewed that is divided then. The server accepts the
// renewals, and those of a downgrade that was not answered before.
func TestBatchBesideDowngrade(t *testing.T) {
	for name, c := range map[string]struct{ before, after mode }{
		"begins":       {exclusive, either},
		"completes":    {either, shared},
		"is refused":   {either, exclusive},
		"has no reply": {either, either},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rows{has: map[string]bool{}, rollBacks: 1}
				b := &Backend{db: sql.OpenDB(r), opt: defaults(), table: table{name: "t"}, acquiring: make(chan struct{}, 8)}
				b.life, b.end = context.WithCancel(t.Context())
				defer b.db.Close()
				var all []backend.Renewal
				for i := range 4 {
					r.has[lit(ownerOf(i))] = true
					g := &grant{b: b, req: backend.Request{Key: fmt.Sprint("k", i), Owner: ownerOf(i)}, token: 7}
					all = append(all, backend.Renewal{Grant: g, TTL: time.Minute})
				}
				g := all[1].Grant.(*grant)
				g.setMode(c.before)
				r.executing = func() { g.setMode(c.after) }
				for i, err := range b.RenewBatch(t.Context(), all) {
					if err != nil {
						t.Errorf("%d: %v", i, err)
					}
				}
				if got, want := fmt.Sprint(r.statements), "[4 2 2]"; got != want {
					t.Errorf("want %s renewals in the statements, got %s", want, got)
				}
			})
		})
	}
}

// TestBatchStatement: the statement has the key, the owner id and the TTL of each grant.
func TestBatchStatement(t *testing.T) {
	b := &Backend{opt: defaults(), table: table{name: "t"}}
	q := b.renewAll([]renewal{
		{g: &grant{b: b, req: backend.Request{Key: "a", Owner: ownerOf(1)}}, ttl: time.Second},
		{g: &grant{b: b, req: backend.Request{Key: "b", Owner: ownerOf(2)}, token: 7, mode: either}, ttl: time.Minute},
	})
	for _, want := range []string{
		"(" + lit("lock:a") + ",0," + lit(ownerOf(1)) + "),(" + lit("lock:b") + ",0," + lit(ownerOf(2)) + "),(" +
			lit("lock:b") + fmt.Sprintf(",%d,", sharePlace(7)) + lit(ownerOf(2)) + ")",
		"WHEN " + lit(ownerOf(1)) + " THEN 1000000 WHEN " + lit(ownerOf(2)) + " THEN 60000000 END",
		"LIMIT 2 FOR UPDATE SKIP LOCKED",
	} {
		if !strings.Contains(q, want) {
			t.Errorf("want %q in %s", want, q)
		}
	}
}

// TestLateAnswer: a renewal that was sent before the last one changes nothing.
func TestLateAnswer(t *testing.T) {
	var g grant
	now := time.Now()
	g.renewed(now, time.Minute)
	g.renewed(now.Add(-time.Second), time.Second)
	if until := g.Until(); !until.Equal(now.Add(time.Minute)) {
		t.Errorf("trusted for %v, want a minute", until.Sub(now))
	}
}

func ownerOf(n int) string { return fmt.Sprintf("%032x", n) }
