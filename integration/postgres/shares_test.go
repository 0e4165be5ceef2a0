package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
)

// TestShares tests the conditions of the statements of shares, one by one.
func TestShares(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil))
	run := func(cases map[string]func(*stage)) {
		for name, f := range cases {
			t.Run(name, func(t *testing.T) {
				f(&stage{t, s, admin, b, strings.ReplaceAll(name, " ", "-")})
			})
		}
	}
	// These count all statements. They run first, since a client asks for locks that it handed over to another process
	// when their provisional grants end.
	run(map[string]func(*stage){"mixed batch": mixedBatch, "many readers": manyReaders})
	run(map[string]func(*stage){
		"readers renew alone": readersRenewAlone, "guard of a reader": guardOfReader, "guard of an expired reader": guardOfExpiredReader, "late share": lateShare,
		"dead readers": deadReaders, "unclaimed permits": unclaimedPermits, "cancelled large request": cancelledLargeRequest,
		"downgrade in doubt": downgradeInDoubt, "downgrade and permits": downgradeAndPermits, "slots at a hand-over": slotsAtHandOver,
		"kept reader": keptReader, "break of readers": breakOfReaders, "expired share": expiredShare,
		"prefix of permits": prefixOfPermits, "first reader of a lock": firstReader,
	})
}

func (s *stage) share(share backend.Share) backend.Request {
	req := request(s.key, time.Hour)
	req.Share = share
	return req
}

func (s *stage) tryShare(share backend.Share) backend.Grant {
	s.Helper()
	g, err := s.b.TryAcquire(s.Context(), s.share(share))
	must(s, err)
	return g
}

// enqueueShare puts a share of another process, which may not exist, into the queue.
func (s *stage) enqueueShare(process string, share backend.Share) backend.Request {
	s.Helper()
	req := s.enqueue(process)
	_, err := s.admin.Exec(s.Context(), "UPDATE interlock SET weight = $2 WHERE waiter = $1", req.Owner, share.Weight)
	must(s, err)
	if share.Weight > 0 {
		s.row("capacity = $2", share.Capacity)
	}
	return req
}

// holders returns the owners of the shared holders, in the order of their tokens.
func (s *stage) holders() (owners []string) {
	s.Helper()
	info, err := s.b.Inspect(s.Context(), s.key)
	must(s, err)
	if info.Holder != nil {
		for _, h := range append([]backend.Holder{*info.Holder}, info.Others...) {
			owners = append(owners, h.Owner)
		}
	}
	return owners
}

func (s *stage) wantHolders(what string, want ...string) {
	s.Helper()
	if got := s.holders(); !slices.Equal(got, want) {
		s.Errorf("%s: want the holders %q, got %q", what, want, got)
	}
}

// expireShares ends the leases of shared holders, all or that of owner.
func (s *stage) expireShares(owner string) {
	s.Helper()
	s.row("expires = clock_timestamp() - interval '1 second'")
	_, err := s.admin.Exec(s.Context(), "UPDATE interlock SET expires = clock_timestamp() - interval '1 second' WHERE name = $1 AND place < -4611686018427387904 AND (waiter = $2 OR $2 = '')",
		[]byte("lock:"+s.key), owner)
	must(s, err)
}

func (s *stage) next(got <-chan outcome) backend.Grant {
	s.Helper()
	select {
	case o := <-got:
		must(s, o.err)
		return o.g
	case <-time.After(20 * time.Second):
		s.Fatal("not granted within 20 s")
		return nil
	}
}

// readersRenewAlone: a renewal of a reader waits for no transaction that has locked the row of
// the lock. A waiter that asks when the first lease was to end finds that it was renewed.
func readersRenewAlone(s *stage) {
	one, two := s.tryShare(backend.Reader), s.tryShare(backend.Reader)
	tx, err := s.admin.Begin(s.Context())
	must(s, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(s.Context(), "SELECT FROM interlock WHERE name = $1 AND place = 0 FOR UPDATE", []byte("lock:"+s.key))
	must(s, err)
	ctx, cancel := context.WithTimeout(s.Context(), 4*time.Second)
	defer cancel()
	must(s, one.Renew(ctx, 2*time.Hour))
	must(s, two.Renew(ctx, 2*time.Hour))
	for i, err := range s.b.RenewBatch(ctx, []backend.Renewal{{Grant: one, TTL: time.Hour}, {Grant: two, TTL: time.Hour}}) {
		if err != nil {
			s.Errorf("renewal %d of a batch: %v", i, err)
		}
	}
	must(s, tx.Rollback(s.Context()))
	s.row("expires = clock_timestamp() - interval '1 second'")
	_, err = s.b.TryAcquire(s.Context(), request(s.key, time.Hour))
	var locked *backend.LockedError
	if !errors.As(err, &locked) || locked.Holder.Share != backend.Reader || locked.Holder.Token != one.Token() {
		s.Errorf("TryAcquire beside readers: want the first of them in the error, got %v", err)
	}
	if _, _, left := s.state(); left < time.Hour {
		s.Errorf("want the row to have the end of the first lease, got it after %v", left)
	}
	must(s, one.Release(s.Context()))
	must(s, two.Release(s.Context()))
	must(s, s.try().Release(s.Context()))
}

// lateShare: a request that arrives after Abandon is refused, whether the attempt held or waited.
func lateShare(s *stage) {
	for _, share := range []backend.Share{backend.Reader, {Weight: 2, Capacity: 3}} {
		req := s.share(share)
		_, err := s.b.TryAcquire(s.Context(), req)
		must(s, err)
		must(s, s.b.Abandon(s.Context(), req))
		if _, err := s.b.TryAcquire(s.Context(), req); !errors.Is(err, backend.ErrInvalid) {
			s.Errorf("%s: a request of a holder that was abandoned: want ErrInvalid, got %v", share, err)
		}
		writer, waiter := s.try(), s.share(share)
		ctx, cancel := context.WithCancel(s.Context())
		waiter.OnWait = func(*backend.LockedError) { cancel() }
		_, err = s.b.Acquire(ctx, waiter)
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s: a cancelled wait: want context.Canceled, got %v", share, err)
		}
		other := open(s.T, pgtest.With(s.s, nil)) // does not know that each request had a reply
		must(s, other.Abandon(s.Context(), waiter))
		must(s, writer.Release(s.Context()))
		if _, err := other.TryAcquire(s.Context(), waiter); !errors.Is(err, backend.ErrInvalid) {
			s.Errorf("%s: a request of a waiter that was abandoned: want ErrInvalid, got %v", share, err)
		}
		must(s, s.try().Release(s.Context()))
	}
}

// deadReaders: readers of a dead process are granted together, and expire together with its
// waiters.
func deadReaders(s *stage) {
	g := s.try()
	d1, d2 := s.enqueueShare(noProcess, backend.Reader), s.enqueueShare(noProcess, backend.Reader)
	live := s.enqueueShare("1111111111111111", backend.Reader)
	s.enqueue(noProcess)
	last := s.enqueueShare("2222222222222222", backend.Reader)
	must(s, g.Release(s.Context()))
	s.wantHolders("readers ahead of the writer", d1.Owner, d2.Owner, live.Owner)
	_, err := s.admin.Exec(s.Context(), "UPDATE interlock SET unclaimed = 0, expires = expires + interval '1 hour' WHERE waiter = $1", live.Owner)
	must(s, err)
	s.expireShares(d1.Owner)
	s.expireShares(d2.Owner)
	if _, err := s.b.TryAcquire(s.Context(), request(s.key, time.Hour)); !errors.Is(err, backend.ErrLocked) {
		s.Errorf("beside a live reader: want ErrLocked, got %v", err)
	}
	s.wantHolders("after the writer of the dead process has left", live.Owner, last.Owner)
	_, err = s.b.Break(s.Context(), s.key, "")
	must(s, err)
	s.wantHolders("after a break of all")
}

// unclaimedPermits: after four unclaimed grants in a row the waiter that asks is granted, and
// those before it keep their places.
func unclaimedPermits(s *stage) {
	all := backend.Share{Weight: 2, Capacity: 2}
	g := s.tryShare(all)
	var dead []backend.Request
	for i := range 7 {
		dead = append(dead, s.enqueueShare(fmt.Sprintf("%016d", i), all))
	}
	live := s.enqueueShare("aaaaaaaaaaaaaaaa", all)
	live.Share = all
	must(s, g.Release(s.Context()))
	for range 3 {
		s.expireShares("")
		if _, err := s.b.TryAcquire(s.Context(), s.share(all)); !errors.Is(err, backend.ErrLocked) {
			s.Errorf("TryAcquire of a key with waiters: want ErrLocked, got %v", err)
		}
	}
	s.wantHolders("after three unclaimed grants", dead[3].Owner)
	s.expireShares("")
	g, err := s.b.TryAcquire(s.Context(), live) // as it polls
	must(s, err)
	must(s, g.Renew(s.Context(), time.Hour))
	if _, queue, _ := s.state(); queue != dead[4].Owner+","+dead[5].Owner+","+dead[6].Owner {
		s.Errorf("want the others to keep their places, got %q", queue)
	}
	_, err = s.b.Break(s.Context(), s.key, live.Owner)
	must(s, err)
	s.wantHolders("after the end of the one that asked", dead[4].Owner)
}

// cancelledLargeRequest: the requests behind a large one are granted when it leaves.
func cancelledLargeRequest(s *stage) {
	g := s.tryShare(backend.Share{Weight: 1, Capacity: 3})
	ctx, cancel := context.WithCancel(s.Context())
	large := s.share(backend.Share{Weight: 3, Capacity: 3})
	waits, left := make(chan struct{}, 1), make(chan error, 1)
	large.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() { _, err := s.b.Acquire(ctx, large); left <- err }()
	select {
	case <-waits:
	case err := <-left:
		s.Fatalf("a request for more than is free: want it to wait, got %v", err)
	}
	one, two := waitFor(s, s.b, s.share(backend.Share{Weight: 1, Capacity: 3})), waitFor(s, s.b, s.share(backend.Share{Weight: 1, Capacity: 3}))
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		s.Errorf("a cancelled wait: want context.Canceled, got %v", err)
	}
	must(s, s.b.Abandon(s.Context(), large))
	for _, g := range []backend.Grant{s.next(one), s.next(two), g} {
		must(s, g.Release(s.Context()))
	}
}

// downgradeInDoubt: the reply of a downgrade was lost. Renew and Release work, done or not.
func downgradeInDoubt(s *stage) {
	for _, done := range []bool{false, true} {
		g := s.try()
		if done {
			must(s, g.(backend.Downgrader).Downgrade(s.Context()))
			must(s, g.(backend.Downgrader).Downgrade(s.Context()))
		}
		must(s, g.Renew(s.Context(), time.Hour))
		must(s, g.(backend.Keeper).Keep(s.Context(), time.Hour))
		must(s, g.Release(s.Context()))
		s.lost("Downgrade after the release", g.(backend.Downgrader).Downgrade(s.Context()))
		must(s, s.try().Release(s.Context()))
	}
	g := s.try()
	tx, err := s.admin.Begin(s.Context())
	must(s, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(s.Context(), "SELECT FROM interlock WHERE name = $1 AND place = 0 FOR UPDATE", []byte("lock:"+s.key))
	must(s, err)
	ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
	defer cancel()
	if err := g.(backend.Downgrader).Downgrade(ctx); !errors.Is(err, backend.ErrUncertain) {
		s.Errorf("a downgrade that waits for the row: want ErrUncertain, got %v", err)
	}
	must(s, tx.Rollback(s.Context()))
	must(s, g.Renew(s.Context(), time.Hour))
	must(s, g.(backend.Downgrader).Downgrade(s.Context()))
	must(s, s.tryShare(backend.Reader).Release(s.Context()))
	must(s, g.Release(s.Context()))
}

// downgradeAndPermits: a writer does not become a reader while permits are waited for.
func downgradeAndPermits(s *stage) {
	g := s.try()
	got := waitFor(s, s.b, s.share(backend.Share{Weight: 1, Capacity: 3}))
	if err := g.(backend.Downgrader).Downgrade(s.Context()); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "semaphore of 3") {
		s.Errorf("a downgrade while permits are waited for: want an ErrInvalid that names the capacity, got %v", err)
	}
	must(s, g.Renew(s.Context(), time.Hour))
	must(s, g.Release(s.Context()))
	must(s, s.next(got).Release(s.Context()))
	g = s.try() // nothing is left of the capacity
	must(s, g.(backend.Downgrader).Downgrade(s.Context()))
	must(s, g.Release(s.Context()))
}

// mixedBatch: one statement renews exclusive holders, another one readers, permits and a writer that
// became a reader. They renew neither a share that has expired nor a lock that was released.
func mixedBatch(s *stage) {
	beside := func(name string) *stage { return &stage{s.T, s.s, s.admin, s.b, s.key + name} }
	one, lost, two := s.tryShare(backend.Reader), s.tryShare(backend.Reader), s.tryShare(backend.Reader)
	s.expireShares(s.holders()[1])
	permits := beside("-permits").tryShare(backend.Share{Weight: 2, Capacity: 3})
	writer, free, down := beside("-writer").try(), beside("-free").try(), beside("-down").try()
	must(s, free.Release(s.Context()))
	must(s, down.(backend.Downgrader).Downgrade(s.Context()))
	var all []backend.Renewal
	for i, g := range []backend.Grant{one, lost, writer, permits, free, down, two} {
		all = append(all, backend.Renewal{Grant: g, TTL: time.Duration(3+i) * time.Hour})
	}
	before, err := pgtest.Commands(s.Context(), s.admin)
	must(s, err)
	for i, err := range s.b.RenewBatch(s.Context(), all) {
		if want := all[i].Grant == lost || all[i].Grant == free; want != errors.Is(err, backend.ErrLost) || !want && err != nil {
			s.Errorf("renewal %d: want it lost: %v, got %v", i, want, err)
		}
	}
	after, err := pgtest.Commands(s.Context(), s.admin)
	must(s, err)
	if n := after - before; n != 4 {
		s.Errorf("want a statement for each kind, and one for each of 2 lost, got %d", n)
	}
	for i, at := range map[int]*stage{0: s, 2: beside("-writer"), 3: beside("-permits"), 5: beside("-down")} {
		info, err := s.b.Inspect(s.Context(), at.key)
		must(s, err)
		if h := info.Holder; h == nil || h.Token != all[i].Grant.Token() || h.Left < all[i].TTL-time.Minute || h.Left > all[i].TTL {
			s.Errorf("renewal %d: want the holder to have token %d and %v left, got %+v", i, all[i].Grant.Token(), all[i].TTL, h)
		}
	}
	for _, g := range []backend.Grant{one, writer, permits, down, two} {
		must(s, g.Release(s.Context()))
	}
}
