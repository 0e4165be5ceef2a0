package faults_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/faults"
	"github.com/interlock-go/lock/integration/faults/workload"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/migrate"
)

var migrating = flag.Duration("faults.migrate", 2*time.Second, "how long each two phases of TestMigrate run beside each other")

// TestMigrate lets clients of two phases contend on two real backends: while one lease is
// trusted no other is, and a resource that keeps the greatest token of each backend
// refuses no holder. Old beside new must show two holders, or the test shows nothing.
func TestMigrate(t *testing.T) {
	provision.LeaveOut(t, "migration between two servers")
	t.Parallel()
	for _, tt := range []struct {
		name     string
		old, new func(*testing.T) *faults.Service
	}{
		{"redis to etcd", redisService, etcdService},
		{"postgres to redis", postgresService, redisService},
		{"etcd to memcached", etcdService, memcachedService},
		{"redis to nats", redisService, natsService},
		{"etcd to s3", etcdService, versityService},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := &migration{old: tt.old(t).Direct, new: tt.new(t).Direct}
			for _, phases := range [][]migrate.Phase{{migrate.PhaseOld, migrate.PhaseBoth}, {migrate.PhaseBoth, migrate.PhaseNew}} {
				holds, wrong := m.run(t, *migrating, phases)
				t.Logf("%v: %d holds", phases, holds)
				for _, w := range wrong {
					t.Errorf("%v: %s", phases, w)
				}
				if holds < leastHolds {
					t.Errorf("%v: %d holds, want %d at least", phases, holds, leastHolds)
				}
			}
			if _, wrong := m.run(t, 2*time.Second, []migrate.Phase{migrate.PhaseOld, migrate.PhaseNew}); len(wrong) == 0 {
				t.Error("old beside new shows no two holders, so the others show nothing")
			}
		})
	}
}

// leastHolds is how many leases each pair of phases must have.
const leastHolds = 50

// migration is a lock that moves, and the resource that it guards.
type migration struct {
	old, new string // URLs
	fence    workload.Fence
}

// term is a lease, from its grant to the end of its trust.
type term struct {
	phase    migrate.Phase
	from, to time.Time
}

// run lets six clients, of the phases in turn, lock for length at least, and returns
// how many leases there were, and the violations.
func (m *migration) run(t *testing.T, length time.Duration, phases []migrate.Phase) (holds int, wrong []string) {
	t.Helper()
	var mu sync.Mutex
	var terms []term
	var all sync.WaitGroup
	opening, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var locks []lock.Mutex
	for i := range 6 {
		var parts []lock.Mutex
		for _, url := range []string{m.old, m.new} {
			var c *lock.Client
			if err := until(opening, func() (err error) { // the machine may be busy
				c, err = lock.Open(opening, url, lock.WithTTL(2*time.Second))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer func() {
				closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				if err := c.Close(closing); err != nil {
					t.Log(err)
				}
			}()
			parts = append(parts, c.Mutex("moves"))
		}
		locks = append(locks, migrate.New(parts[0], parts[1], phases[i%len(phases)]))
	}
	begun := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), length+time.Minute) // of which a busy machine may take a part
	defer stop()
	for i, l := range locks {
		phase := phases[i%len(phases)]
		all.Go(func() {
			for ctx.Err() == nil {
				lease, err := l.Lock(ctx)
				if err != nil {
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Millisecond): // a busy machine; if it never works, holds are missing
					}
					continue
				}
				h := term{phase: phase, from: time.Now()}
				refused := m.write(lease, phase)
				time.Sleep(time.Duration(i+1) * time.Millisecond) // what the lock is for
				refused = append(refused, m.write(lease, phase)...)
				h.to = time.Now()
				if expires := lease.Expires(); !expires.IsZero() && expires.Before(h.to) {
					h.to = expires
				}
				err = lease.Unlock(context.Background())
				mu.Lock()
				terms, wrong = append(terms, h), append(wrong, refused...)
				if time.Since(begun) > length && len(terms) >= leastHolds {
					stop()
				}
				mu.Unlock()
				if err != nil {
					t.Logf("%v: %v", phase, err) // lost on a busy machine; the terms show whether another client got it
				}
			}
		})
	}
	all.Wait()
	slices.SortFunc(terms, func(a, b term) int { return a.from.Compare(b.from) })
	var last term
	for _, h := range terms {
		if h.from.Before(last.to) && h.from.Before(h.to) {
			wrong = append(wrong, fmt.Sprintf("two holders, of %v and %v, for %v", last.phase, h.phase, last.to.Sub(h.from)))
		}
		if h.to.After(last.to) {
			last = h
		}
	}
	return len(terms), wrong
}

// write shows the resource the token of each backend.
func (m *migration) write(l *lock.Lease, phase migrate.Phase) (refused []string) {
	for i, part := range l.Parts() {
		backend := i
		if phase == migrate.PhaseNew {
			backend = 1
		}
		token, ok := part.Token()
		if !ok {
			return []string{fmt.Sprintf("%v: part %d has no token", phase, i)}
		}
		before := l.Err()
		if accepted := m.fence.Write(backend, token); !accepted && before == nil && l.Err() == nil {
			refused = append(refused, fmt.Sprintf("%v: token %d of part %d was refused within its trust", phase, token, i))
		}
	}
	return refused
}
