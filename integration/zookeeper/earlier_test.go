package zookeeper_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/integration/provision"
)

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
