package record_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// A process that locks again what it has released does not read, unless others have locked meanwhile or the lease would have
// ended.
func TestFreeRecordIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		mine, other := record.New(w, record.Options{}), record.New(w, record.Options{})
		owners := 0
		token := uint64(0)
		cycle := func(l *record.Locks, reads, writes int) {
			t.Helper()
			owners++
			read, written := int(w.reads.Load()), w.written()
			g := take(t, l, strconv.Itoa(owners))
			nothing(t, g.Release(t.Context()))
			if r, n := int(w.reads.Load())-read, w.written()-written; r != reads || n != writes {
				t.Errorf("cycle %d: %d reads and %d writes, want %d and %d", owners, r, n, reads, writes)
			}
			if g.Token() <= token {
				t.Errorf("cycle %d: token %d after %d", owners, g.Token(), token)
			}
			token = g.Token()
		}
		cycle(mine, 1, 2)
		cycle(mine, 0, 2)
		cycle(mine, 0, 2)
		cycle(other, 1, 2)
		refusals := w.refused
		cycle(mine, 1, 2) // after a write that was refused
		cycle(other, 1, 2)
		cycle(mine, 1, 2)
		if n := w.refused - refusals; n != 2 { // each process once
			t.Errorf("%d writes were refused, want 2", n)
		}
		cycle(mine, 1, 2) // as it has left it
		cycle(mine, 0, 2)
		time.Sleep(ttl)
		cycle(mine, 1, 2)
		cycle(mine, 0, 2)
	})
}

// A release for those who wait is no free lock.
func TestReservedRecordIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		q := queue(w)
		g := take(t, q.Locks, "a")
		granted := waits(t, queue(w), "b")
		time.Sleep(time.Second)
		nothing(t, g.Release(t.Context()))
		if _, err := q.Locks.TryAcquire(t.Context(), request("c")); err == nil {
			t.Error("the process that has released got the lock before one that waits")
		}
		nothing(t, (<-granted).Release(t.Context()))
	})
}

// A write without a reply, by a process that has not read the record, is abandoned like any other.
func TestLostReplyOfAnUnreadRecord(t *testing.T) {
	for _, executed := range []bool{true, false} {
		w := newWatching()
		l := record.New(w, record.Options{})
		nothing(t, take(t, l, "a").Release(t.Context()))
		free := w.items["k"].Version
		w.failing(func(string) error { return errNoReply })
		if !executed {
			w.lost = true
		}
		if _, err := l.TryAcquire(t.Context(), request("b")); !backend.OutcomeUnknown(err) {
			t.Errorf("want an unknown outcome, got %v", err)
		}
		w.failing(nil)
		w.lost = false
		nothing(t, l.Abandon(t.Context(), request("b")))
		if w.items["k"].Version == free {
			t.Error("the write may still be executed")
		}
		take(t, record.New(w, record.Options{}), "c")
	}
}
