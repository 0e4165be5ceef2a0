package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
)

// TestDowngradeRacesPermits downgrades while permits come: either Downgrade is refused, or the
// permits are, and both never hold.
func TestDowngradeRacesPermits(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper39)
	a, b := client(t, "zk://"+s.Addr(), 10*time.Second), client(t, "zk://"+s.Addr(), 10*time.Second)
	refused := map[string]int{}
	for i := range 40 {
		const key = "race"
		l := must[*lock.Lease](t)(a.Mutex(key).Lock(t.Context()))
		got := make(chan granted, 1)
		var reader atomic.Bool
		go func() {
			time.Sleep(rand.N(3 * time.Millisecond))
			l, err := b.Semaphore(key, 2).Acquire(t.Context(), 1)
			if reader.Load() {
				t.Errorf("round %d: permits beside a reader", i)
			}
			got <- granted{"", l, err}
		}()
		time.Sleep(rand.N(3 * time.Millisecond))
		err := l.Downgrade(t.Context())
		switch {
		case err == nil:
			select {
			case g := <-got:
				if !errors.Is(g.err, lock.ErrInvalid) {
					t.Fatalf("round %d: permits that come after a downgrade: %v, %v", i, g.l, g.err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("round %d: permits wait for a reader", i)
			}
			refused["permits"]++
			err = l.Unlock(t.Context())
		case errors.Is(err, lock.ErrInvalid):
			refused["downgrade"]++
			if err = l.Unlock(t.Context()); err == nil {
				err = receive(t, "permits", got).Unlock(t.Context())
			}
		}
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	t.Logf("refused: %v", refused)
	nothingLeft(t, []string{s.Addr()}, "race")
}

// TestCapacitiesRace lets clients want shares of different capacities: each call is granted or
// refused in time, and what holds at the same time has one capacity and fits.
func TestCapacitiesRace(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper39)
	shares := []lock.Share{backend.Reader, {Weight: 1, Capacity: 2}, {Weight: 2, Capacity: 3}, {}, {Weight: 1, Capacity: 3}}
	const key = "capacities"
	o := &occupancy{t: t}
	end := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	var grants, refused atomic.Int64
	for range 4 {
		c := client(t, "zk://"+s.Addr(), 10*time.Second)
		for range 3 {
			wg.Go(func() {
				for time.Now().Before(end) && !t.Failed() {
					share := shares[rand.IntN(len(shares))]
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					call := shareOf(c, key, share).Lock
					if rand.IntN(4) == 0 {
						call = shareOf(c, key, share).TryLock
					}
					l, err := call(ctx)
					cancel()
					switch {
					case err == nil:
						grants.Add(1)
						o.enter(l, share)
						time.Sleep(rand.N(2 * time.Millisecond))
						o.leave(l)
						if err := l.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					case errors.Is(err, lock.ErrInvalid), errors.Is(err, lock.ErrLocked):
						refused.Add(1)
						time.Sleep(rand.N(5 * time.Millisecond))
					default:
						t.Errorf("%s: %v", share, err)
					}
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d grants, %d refused", grants.Load(), refused.Load())
	nothingLeft(t, []string{s.Addr()}, key)
}

func shareOf(c *lock.Client, key string, s lock.Share) lock.Mutex {
	switch {
	case s.Exclusive():
		return c.Mutex(key)
	case s.Capacity == 0:
		return c.RWMutex(key).RLocker()
	}
	return c.Semaphore(key, s.Capacity).Weighted(s.Weight)
}

// occupancy fails the test if the leases that are trusted at a time do not fit together.
type occupancy struct {
	t    *testing.T
	mu   sync.Mutex
	held map[*lock.Lease]lock.Share
}

func (o *occupancy) enter(l *lock.Lease, s lock.Share) {
	o.mu.Lock()
	defer o.mu.Unlock()
	token, _ := l.Token()
	weight := s.Weight
	for other, x := range o.held {
		if other.Err() != nil {
			continue
		}
		its, _ := other.Token()
		if weight += x.Weight; s.Exclusive() || x.Exclusive() || s.Capacity != x.Capacity || s.Capacity > 0 && weight > s.Capacity {
			o.t.Errorf("%s, token %d, is granted beside %s, token %d", s, token, x, its)
		}
		for _, slot := range l.Slots() {
			if slices.Contains(other.Slots(), slot) {
				o.t.Errorf("slot %d is that of token %d and of token %d", slot, token, its)
			}
		}
	}
	if o.held == nil {
		o.held = map[*lock.Lease]lock.Share{}
	}
	o.held[l] = s
}

func (o *occupancy) leave(l *lock.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, l)
}

// TestSharesWhileLinksFail locks shares while connections are reset, replies are lost and
// sessions end.
func TestSharesWhileLinksFail(t *testing.T) {
	for name, shares := range map[string][]lock.Share{
		"readers": {backend.Reader, backend.Reader, backend.Reader, {}},
		"permits": {{Weight: 1, Capacity: 3}, {Weight: 2, Capacity: 3}, {Weight: 1, Capacity: 3}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			s := provision.NewZooKeeper(t, provision.ZooKeeper39)
			o := &occupancy{t: t}
			const ttl = 2 * time.Second
			end := time.Now().Add(12 * time.Second)
			var grants, lost atomic.Int64
			var wg sync.WaitGroup
			for i := range 4 {
				p := provision.NewProxy(t, s.Addr())
				c := client(t, "zk://"+p.Addr(), ttl)
				for range 3 {
					wg.Go(func() {
						for time.Now().Before(end) {
							share := shares[rand.IntN(len(shares))]
							ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
							l, err := shareOf(c, name, share).Lock(ctx)
							cancel()
							if err != nil {
								if errors.Is(err, lock.ErrInvalid) || errors.Is(err, context.DeadlineExceeded) {
									t.Errorf("%s: %v", share, err)
								}
								continue
							}
							o.enter(l, share)
							work := rand.N(5 * time.Millisecond)
							if rand.IntN(50) == 0 {
								work = ttl // so that leases end while their links are silent
							}
							select {
							case <-time.After(work):
							case <-l.Done():
							}
							if l.Err() != nil {
								lost.Add(1)
							}
							o.leave(l)
							_ = l.Unlock(t.Context())
							grants.Add(1)
						}
					})
				}
				wg.Go(func() {
					for n := 0; time.Now().Before(end.Add(-2 * time.Second)); n++ {
						time.Sleep(300*time.Millisecond + rand.N(time.Second))
						switch n % 8 {
						case i:
							p.Blackhole()
							time.Sleep(ttl + ttl/4)
							_ = p.Heal()
						case 0:
							p.ResetPeer()
						case 1:
							p.CutAfterReplies(rand.IntN(10))
						default:
							p.DropReply(func(chunk []byte) bool { return sends(chunk, opMulti, name) })
						}
					}
					_ = p.Heal()
				})
			}
			wg.Wait()
			t.Logf("%d grants, %d lost", grants.Load(), lost.Load())
			if grants.Load() < 10 {
				t.Error("too few grants")
			}
			nothingLeft(t, []string{s.Addr()}, name)
		})
	}
}

// TestSharesBesideEarlierRelease lets a program that knows no shares, and reads each node as a
// place of one exclusive queue, use the key together with readers and permits.
func TestSharesBesideEarlierRelease(t *testing.T) {
	s := provision.NewZooKeeper(t, provision.ZooKeeper39)
	const key = "mixed"
	c := client(t, "zk://"+s.Addr(), 10*time.Second)
	makeNode(t, c, key)
	conn := admin(t, []string{s.Addr()})
	var exclusive, shared atomic.Int64
	end := time.Now().Add(3 * time.Second)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				own, err := formerLock(t.Context(), conn, key)
				if err != nil {
					t.Error(err)
					return
				}
				if e, x := exclusive.Add(1), shared.Load(); e != 1 || x != 0 {
					t.Errorf("an earlier release holds beside %d exclusive holders and %d shared ones", e-1, x)
				}
				time.Sleep(rand.N(time.Millisecond))
				exclusive.Add(-1)
				if err := conn.Delete(own, -1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for time.Now().Before(end) {
				l, err := c.RWMutex(key).RLock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				shared.Add(1)
				if e := exclusive.Load(); e != 0 {
					t.Error("a reader beside an earlier release")
				}
				time.Sleep(rand.N(time.Millisecond))
				shared.Add(-1)
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// formerLock locks as earlier releases do.
func formerLock(ctx context.Context, conn *zk.Conn, key string) (string, error) {
	const ownerLen = 32
	owner := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	own, err := conn.Create(node(key)+"/"+owner+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return "", err
	}
	place := func(name string) int64 {
		if len(name) < ownerLen+11 {
			return -1
		}
		seq, err := strconv.ParseInt(name[ownerLen+1:], 10, 32)
		if err != nil {
			return -1
		}
		return seq
	}
	mine := place(own[len(node(key))+1:])
	for ctx.Err() == nil {
		names, _, event, err := conn.ChildrenW(node(key))
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(names, func(n string) bool { p := place(n); return p >= 0 && p < mine }) {
			return own, nil
		}
		select {
		case <-event:
		case <-ctx.Done():
		}
	}
	return "", ctx.Err()
}
