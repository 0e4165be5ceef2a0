package conformance

import (
	"context"
	"errors"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var downgradeCases = []Case{
	{
		ID:     "shared/44-downgrade",
		Title:  "a writer that becomes a reader lets readers in, keeps writers out, and keeps its token",
		Clause: "Downgrade makes an exclusive grant that of a reader in one step, and readers at the head of the queue are granted.",
		needs:  []need{needShared},
		run:    downgrade,
	},
	{
		ID:     "shared/44-downgrade-reply-dropped",
		Title:  "a downgrade whose reply was dropped is completed by the next call",
		Clause: "A second call of Downgrade after an error completes it, and does nothing to a reader.",
		needs:  []need{needShared},
		run:    downgradeReplyDropped,
	},
	{
		ID:     "shared/44-downgrade-races-unlock",
		Title:  "Downgrade, Unlock, Extend, Check and Err of a lease at the same time: afterwards the key is free",
		Clause: "Release may overlap a Renew or a Downgrade that was called before.",
		needs:  []need{needShared},
		run:    downgradeRacesUnlock,
	},
	{
		ID:     "shared/44-downgrade-refused-later",
		Title:  "after a downgrade whose reply was dropped a refusal of the next request is not its outcome: nothing is exclusive any more",
		Clause: downgradeClause,
		needs:  []need{needShared},
		run:    func(t *T) { t.downgradeUnknown(false) },
	},
	{
		ID:     "shared/44-downgrade-late",
		Title:  "a request to downgrade that arrives after the next one was refused makes no reader of a lease that counts as a writer's",
		Clause: downgradeClause,
		needs:  []need{needShared},
		run:    func(t *T) { t.downgradeUnknown(true) },
	},
}

const downgradeClause = "After a request to downgrade whose outcome is unknown the lease is that of a reader for good, and the errors match" +
	" ErrUncertain until the service has answered that it is."

func downgrade(t *T) {
	key := t.key("downgrade")
	rw := t.client().RWMutex(key)
	w := t.mustLock(rw, "a free key")
	token, _ := w.Token()
	queue := []lock.Share{backend.Reader, backend.Reader, {}}
	var got []<-chan locked
	if _, ok := t.probe.(backend.Waiter); ok {
		got = t.queueShares(key, queue...)
	}
	for range 2 { // the second does nothing
		if err := w.Downgrade(t.ctx); err != nil {
			t.fatalf("Downgrade of a writer: want nil, got %v", err)
		}
	}
	if now, _ := w.Token(); now != token {
		t.errorf("token after Downgrade: want %d as before, got %d", token, now)
	}
	if err := w.Check(t.ctx); err != nil {
		t.errorf("a writer that became a reader: want it to hold, got %v", err)
	}
	t.refused(rw, "a writer beside the one that became a reader")
	if got != nil {
		r1, r2 := t.granted(t.slack(), "a reader that waited", got[0]).lease, t.granted(t.slack(), "a second reader", got[1]).lease
		t.stillWaits("beside three readers", got[2:]...)
		t.mustUnlock(r1, "a reader")
		t.mustUnlock(w, "the former writer")
		t.stillWaits("beside the last reader", got[2:]...)
		t.mustUnlock(r2, "the last reader")
		w = t.granted(t.slack(), "the writer behind the readers", got[2]).lease
	}
	t.mustUnlock(w, "the last holder")
	t.free(t.client(), key, "after a downgrade", t.slack())
}

func downgradeReplyDropped(t *T) {
	key := t.key("downgrade-dropped")
	tm := t.tamper()
	w := t.mustLock(t.clientOf(tm.backend()).RWMutex(key), "a free key")
	tm.dropDowngrade.Store(1)
	if err := w.Downgrade(t.ctx); err != nil {
		t.fatalf("Downgrade whose first reply was dropped: want nil, got %v", err)
	}
	if n := tm.dropDowngrade.Load(); n != 0 {
		t.fatalf("Downgrade: want a request whose reply is dropped, there was none")
	}
	r := t.mustLock(t.client().RWMutex(key).RLocker(), "a reader beside the former writer")
	t.refused(t.client().Mutex(key), "a writer beside two readers")
	t.mustUnlock(w, "the former writer")
	t.refused(t.client().Mutex(key), "a writer beside a reader")
	t.mustUnlock(r, "the reader")
	t.free(t.client(), key, "after a downgrade whose reply was dropped", t.slack())
}

// downgradeUnknown makes the outcome of a request to downgrade unknown and refuses the next ones. If late is set the
// request arrives after that.
func (t *T) downgradeUnknown(late bool) {
	key := t.key("downgrade-unknown")
	tm := t.tamper()
	c, other := t.clientOf(tm.backend(), lock.WithReentry()), t.client()
	w := t.mustLock(c.RWMutex(key), "a free key")
	exclusive := func(what string) {
		if l, err := c.Mutex(key).TryLock(w.Context()); !errors.Is(err, lock.ErrLocked) {
			t.errorf("TryLock under a lease %s: want ErrLocked, got %s, %v", what, leaseText(l), err)
			if err == nil {
				_ = l.Unlock(t.ctx)
			}
		}
	}
	refused := func(what string) {
		ctx, cancel := context.WithTimeout(t.ctx, unanswered)
		defer cancel()
		if err := w.Downgrade(ctx); !errors.Is(err, lock.ErrUncertain) {
			t.errorf("Downgrade of which %s: want ErrUncertain, got %v", what, err)
		}
		exclusive("of which " + what)
	}
	if late {
		tm.delayDowngrade.Store(1)
	} else {
		tm.dropDowngrade.Store(1)
	}
	tm.refuseDowngrade.Store(true)
	refused("one request has no reply and the next ones are not sent")
	refused("a request has no reply, in a call after that")
	if late {
		(<-tm.delayed)()
	}
	r := t.mustLock(other.RWMutex(key).RLocker(), "a reader beside the former writer")
	exclusive("whose request to downgrade was executed")
	tm.refuseDowngrade.Store(false)
	if err := w.Downgrade(t.ctx); err != nil {
		t.errorf("Downgrade when requests are sent again: want nil, got %v", err)
	}
	if err := w.Check(t.ctx); err != nil {
		t.errorf("the former writer: want it to hold, got %v", err)
	}
	t.mustUnlock(w, "the former writer")
	t.refused(other.Mutex(key), "a writer beside a reader")
	t.mustUnlock(r, "the reader")

	// Certainly not executed: the lease is a writer's as before.
	w = t.mustLock(c.RWMutex(key), "a free key")
	tm.refuseDowngrade.Store(true)
	ctx, cancel := context.WithTimeout(t.ctx, unanswered)
	defer cancel()
	if err := w.Downgrade(ctx); err == nil || backend.OutcomeUnknown(err) {
		t.errorf("Downgrade of which no request was sent: want an error that says so, got %v", err)
	}
	if nested, err := c.Mutex(key).TryLock(w.Context()); err != nil {
		t.errorf("TryLock under a writer whose downgrade was not sent: want a nested lease, got %v", err)
	} else {
		t.mustUnlock(nested, "the nested lease")
	}
	t.refused(other.RWMutex(key).RLocker(), "a reader beside a writer whose downgrade was not sent")
	t.mustUnlock(w, "the writer")
	t.free(other, key, "after downgrades that were not answered", t.slack())
}
