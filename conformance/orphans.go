package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// orphanCases have dead waiters and no process left that knows of them.
var orphanCases = []Case{
	{
		ID:     "waiting/12-releaser-exits",
		Title:  "two waiting processes are killed, or stopped, and the process that releases the key exits: the next waiter is served within the declared time for each",
		Clause: "Dead waiters of several processes delay the waiters behind them by at most Budget.DeadProcess for each process, also if the process that released the key has ended.",
		needs:  []need{needQueue, needDeadProcess, needWorker},
		run:    releaserExits,
	},
	{
		ID:     "shared/48-dead-waiter-short-attempts",
		Title:  "a writer that was killed, or stopped, while it waited beside a reader delays readers that try, or wait for half a second, by at most the declared time",
		Clause: "A dead waiter that does not fit beside the holders delays a share that comes after its death by at most Budget.DeadProcess, also if each attempt is short.",
		needs:  []need{needShared, needQueue, needDeadProcess, needWorker},
		run:    shortAttemptsBehindDeadWaiter,
	},
}

// deaths returns how processes can die.
func (t *T) deaths() []string {
	if s, _ := needSignals.check(t); s == "" && t.expires() {
		return []string{"killed", "stopped"}
	}
	return []string{"killed"}
}

func (p *process) die(how string) {
	if how == "killed" {
		p.kill()
	} else if err := p.stop(); err != nil {
		p.t.fatalf("worker: %v", err)
	}
}

// orphanTTL is that of a waiter that dies.
func (t *T) orphanTTL() time.Duration {
	if t.caps.Loss == backend.LossSession { // a dead process delays others until the end of its session
		return t.clampTTL(3 * time.Second)
	}
	return t.clampTTL(30 * time.Second)
}

func releaserExits(t *T) {
	type outcome struct {
		what  string
		start time.Time
		got   <-chan locked
	}
	q := deadQueue{processes: 2, waiters: 1, ttl: t.orphanTTL()}
	var all []outcome
	for _, how := range t.deaths() {
		key := t.key("releaser-" + how)
		releaser := t.worker()
		releaser.lock(key, t.longTTL())
		dead := []*process{t.worker(), t.worker()}
		for _, p := range dead {
			p.waitLock(key, q.ttl)
		}
		got := t.lockWaiting(t.ctx, t.waiter(), key, lock.WithTTL(t.clampTTL(30*time.Second)))
		for _, p := range dead {
			p.die(how)
		}
		start := time.Now()
		releaser.unlock(key)
		releaser.kill()
		all = append(all, outcome{fmt.Sprintf("a waiter behind those of 2 %s processes, after the process that released the key has ended", how), start, got})
	}
	for _, o := range all {
		l := t.granted(q.bound(t)-time.Since(o.start), o.what, o.got)
		t.notef("%s: granted after %v", o.what, l.at.Sub(o.start).Round(time.Millisecond))
		t.mustUnlock(l.lease, o.what)
	}
}

func shortAttemptsBehindDeadWaiter(t *T) {
	q := deadQueue{processes: 1, waiters: 1, ttl: t.orphanTTL()}
	for _, how := range t.deaths() {
		for _, what := range []string{"TryRLock", "RLock for 500ms"} {
			key := t.key("short-" + how)
			rw := t.client().RWMutex(key)
			reader := t.mustLock(rw.RLocker(), "a free key")
			writer := t.worker()
			writer.waitLock(key, q.ttl)
			writer.die(how)
			start := time.Now()
			t.eventually(q.bound(t), fmt.Sprintf("%s beside a reader, again and again, with a first waiter whose process was %s", what, how), func() error {
				call := rw.TryRLock
				if what != "TryRLock" {
					call = rw.RLock
				}
				ctx, cancel := context.WithTimeout(t.ctx, 500*time.Millisecond)
				defer cancel()
				l, err := call(ctx)
				if err != nil {
					return err
				}
				t.notef("%s, first waiter %s: granted after %v", what, how, time.Since(start).Round(time.Millisecond))
				if err := l.Unlock(t.ctx); err != nil && !errors.Is(err, lock.ErrLost) {
					t.errorf("Unlock: want nil, got %v", err)
				}
				return nil
			})
			writer.kill()
			t.mustUnlock(reader, "the reader")
		}
	}
}
