package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/interlock-go/lock"
)

// needClockWorker asks for a process with a wrong clock, which only a harness can
// make: a Go program reads the clock without the C library, so that faketime has
// no effect on it.
var needClockWorker = need{"hook ClockWorker", func(t *T) (Status, string) {
	if s, why := needWorker.check(t); s == NotDeclared {
		return s, why
	}
	if t.h.ClockWorker == nil {
		return NotRun, "the harness has no ClockWorker (package conformanceclock has one)"
	}
	return "", ""
}}

func otherProcess(t *T) {
	key := t.key("process")
	p := t.worker()
	p.lock(key, t.longTTL())
	c := t.client()
	t.refused(c.Mutex(key), "a key that another process holds")
	got := t.lockWaiting(t.ctx, t.waiter(), key)
	p.unlock(key)
	l := t.granted(t.slack(), "a waiter behind another process", got).lease

	// and the other way round
	p.waitLock(key, t.longTTL())
	t.mustUnlock(l, "the waiter")
	p.expect("granted", t.slack())
	t.refused(c.Mutex(key), "a key that another process holds")
	p.unlock(key)
	t.free(c, key, "after all have released", t.slack())
}

func processesOneKilled(t *T) {
	const workers = 3
	key := t.key("processes")
	file := filepath.Join(os.TempDir(), key)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.fatalf("log of the workers: %v", err)
	}
	defer func() { _ = os.Remove(file) }()
	var ps []*process
	for range workers {
		p := t.worker()
		p.say("cycle " + key + " " + file)
		ps = append(ps, p)
	}
	entered := func(pid int) int { return strings.Count(t.read(file), fmt.Sprintf("enter %d ", pid)) }
	reach := func(ps []*process, turns int, d time.Duration, what string) {
		from := map[*process]int{}
		for _, p := range ps {
			from[p] = entered(p.cmd.Process.Pid)
		}
		t.eventually(d, what, func() error {
			for _, p := range ps {
				if n := entered(p.cmd.Process.Pid) - from[p]; n < turns {
					return fmt.Errorf("process %d had %d of %d turns", p.cmd.Process.Pid, n, turns)
				}
			}
			return nil
		})
	}
	bound := t.clampTTL(cycleTTL) + 3*t.slack()
	reach(ps, 5, bound, "turns of all processes")
	victim := ps[0].cmd.Process.Pid
	for end := time.Now().Add(bound); t.last(file) != fmt.Sprintf("enter %d", victim); {
		if time.Now().After(end) {
			t.fatalf("the moment when process %d is inside: want it within %v", victim, bound)
		}
	}
	ps[0].kill() // most likely inside
	reach(ps[1:], 5, bound, "turns of the others after one was killed")
	log := t.read(file) // before the others are killed, too
	log = log[:strings.LastIndex(log, "\n")+1]

	// Lines are appended, so their order in the file is that of the events.
	lines := strings.Split(strings.TrimSpace(log), "\n")
	late := map[string]bool{} // "PID TOKEN" of those who had lost the lock by the time they left
	for _, line := range lines {
		if who, ok := strings.CutPrefix(line, "late "); ok {
			late[who] = true
		}
	}
	inside, token, lastToken := "", uint64(0), uint64(0)
	for i, line := range lines {
		var what, pid string
		if n, err := fmt.Sscan(line, &what, &pid, &token); n != 3 {
			t.fatalf("line %d of the workers' log, %q: %v", i, line, err)
		}
		switch {
		case what == "enter" && inside != "" && inside != fmt.Sprint(victim) && !late[fmt.Sprint(inside, " ", lastToken)]:
			t.errorf("line %d: process %s entered with token %d while %s was inside", i, pid, token, inside)
		case what == "enter" && t.fences() && token <= lastToken:
			t.errorf("line %d: process %s entered with token %d after %d", i, pid, token, lastToken)
		case what == "leave" && inside != pid:
			t.errorf("line %d: process %s left while %q was inside", i, pid, inside)
		}
		switch {
		case what == "enter":
			inside, lastToken = pid, token
		case what == "leave", inside == pid:
			inside = ""
		}
	}
}

func (t *T) read(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		t.fatalf("log of the workers: %v", err)
	}
	return string(b)
}

// last returns the last event and its process.
func (t *T) last(file string) string {
	lines := strings.Split(strings.TrimSpace(t.read(file)), "\n")
	f := strings.Fields(lines[len(lines)-1])
	if len(f) < 2 {
		return ""
	}
	return f[0] + " " + f[1]
}

func clientClock(t *T) {
	ttl, c := t.clampTTL(2*t.ttl()), t.client() // the TTL of the client bounds TryLock
	type wrongClock struct {
		off time.Duration
		key string
		p   *process
		l   *lock.Lease
	}
	var clocks []*wrongClock
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		w := &wrongClock{off: off, key: t.key("clock"), p: t.launch(t.h.ClockWorker(off))}
		w.p.lock(w.key, ttl)
		clocks = append(clocks, w)
	}
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); t.idleFor(ttl / 10) {
		for _, w := range clocks {
			w.p.excludes(c.Mutex(w.key), fmt.Sprintf("a key that is held and renewed by a process whose clock is off by %v", w.off))
		}
	}
	for _, w := range clocks {
		switch got := w.p.giveBack(w.key); got {
		case "ok":
		case "lost":
			t.again("a lease of a process whose clock is off by %v was lost, by its clock or by a machine that stood still", w.off)
		default:
			t.fatalf("Unlock by the worker: want nil, got %s", got)
		}
		w.l = t.mustLock(c.Mutex(w.key), "a released key")
		w.p.waitLock(w.key, ttl)
	}
	t.idleFor(2 * ttl)
	for _, w := range clocks {
		if err := w.l.Check(t.ctx); errors.Is(err, lock.ErrLost) { // a slow service is no loss
			t.errorf("a holder behind which a process waits whose clock is off by %v: want it to hold, got %v", w.off, err)
		}
		t.mustUnlock(w.l, "the holder")
		w.p.expect("granted", t.slack())
		w.p.kill()
	}
	for _, w := range clocks {
		l := t.granted(t.deathBound(ttl), "the key of a killed process", t.lockAsync(t.ctx, c.Mutex(w.key))).lease
		if err := l.Unlock(t.ctx); err != nil && !errors.Is(err, lock.ErrLost) {
			t.errorf("Unlock: want nil, got %v", err)
		}
	}
}
