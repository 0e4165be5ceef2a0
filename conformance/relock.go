package conformance

import "time"

const (
	relockHold = 500 * time.Millisecond
	mostRelock = 5 // holds that a waiter may be overtaken by
)

// relocked lets a client lock again as soon as it has unlocked, while another client waits.
func relocked(t *T) {
	key := t.key("relocked")
	again := t.client().Mutex(key)
	l := t.mustLock(again, "a free key")
	got := t.lockWaiting(t.ctx, t.waiter(), key)
	for range mostRelock {
		select {
		case next := <-got:
			if next.err != nil {
				t.fatalf("a waiter: want a grant, got %v", next.err)
			}
			t.mustUnlock(next.lease, "the waiter")
			return
		case <-time.After(relockHold): // the work under the lock
		}
		t.mustUnlock(l, "the holder")
		next := t.lockAsync(t.ctx, again)
		select {
		case waited := <-got:
			if waited.err != nil {
				t.fatalf("a waiter: want a grant, got %v", waited.err)
			}
			t.mustUnlock(waited.lease, "the waiter")
			t.mustUnlock(t.granted(t.slack(), "the client that locked again", next).lease, "the client that locked again")
			return
		case relock := <-next:
			if relock.err != nil {
				t.fatalf("the client that locked again: want a grant, got %v", relock.err)
			}
			l = relock.lease
		}
	}
	t.errorf("a waiter: want it served before another client has locked again %d times, it still waits", mostRelock)
}
