package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// task is a command to be run under a lock.
type task struct {
	*app
	f     *runFlags
	name  string
	path  string // of the command
	argv  []string
	urls  []string // where the lock is: one, or during a migration the old and the new
	ttl   time.Duration
	grace time.Duration

	clients []*lock.Client // of urls
	mutex   lock.Mutex
	notices *waitNotice
}

// newTask checks what can be checked before anything is opened.
func (a *app) newTask(f *runFlags, name string, argv []string) (*task, error) {
	t := &task{app: a, f: f, name: name, argv: argv}
	// A command that cannot run must not make others wait.
	var err error
	if t.path, err = exec.LookPath(argv[0]); err != nil {
		return nil, &failure{startCode(err), fmt.Errorf("cannot run %q: %w", argv[0], unwrapExec(err))}
	}
	if t.urls, err = a.placesOf(f); err != nil {
		return nil, err
	}
	if t.ttl, err = effectiveTTL(time.Duration(f.ttl), t.urls[0]); err != nil {
		return nil, err
	}
	t.grace = defaultGrace(t.ttl)
	if f.grace.given {
		t.grace = f.grace.d
	}
	if t.grace > maxGrace(t.ttl) {
		return nil, usagef("invalid --grace %v: want 0 to %v, half of the TTL of %v", t.grace, maxGrace(t.ttl), t.ttl)
	}
	return t, nil
}

// placesOf are the URLs of the places where the lock has to be taken.
func (a *app) placesOf(f *runFlags) ([]string, error) {
	if (f.migrateTo == "") != (f.phase == "") {
		return nil, usagef("--migrate-to and --phase go together: want both or none")
	}
	url, err := chooseURL(a.url, a.getenv)
	if err != nil || f.phase == "" {
		return []string{url}, err
	}
	var phase lock.Phase
	if err := phase.UnmarshalText([]byte(f.phase)); err != nil {
		return nil, usagef("invalid --phase %q: want old, both or new", f.phase)
	}
	if url == f.migrateTo {
		return nil, usagef("--migrate-to is the place where the lock is already")
	}
	for _, u := range []string{url, f.migrateTo} { // the one that is not opened yet, too
		if _, err := backend.ParseURL(u); err != nil {
			return nil, err
		}
	}
	switch phase {
	case lock.PhaseOld:
		return []string{url}, nil
	case lock.PhaseNew:
		return []string{f.migrateTo}, nil
	}
	return []string{url, f.migrateTo}, nil
}

// open opens a client of each place.
func (t *task) open(ctx context.Context) error {
	t.notices = t.newWaitNotice(t.name)
	var ms []lock.Mutex
	for i, url := range t.urls {
		opts := []lock.Option{lock.WithTTL(t.ttl), lock.WithMinHold(t.f.minHold.d),
			lock.WithRequire(backend.RequireMachineScope), // any less excludes nobody
			lock.WithObserver(t.notices.observer(i))}
		if t.f.as != "" {
			opts = append(opts, lock.WithMetadata(t.f.as))
		}
		c, err := t.openURL(ctx, url, opts...)
		if err != nil {
			return err
		}
		t.clients = append(t.clients, c)
		ms = append(ms, c.Mutex(t.name))
	}
	t.mutex = ms[0]
	if len(ms) > 1 {
		t.mutex = lock.Migrate(ms[0], ms[1], lock.PhaseBoth)
	}
	return nil
}

func (t *task) close() {
	for _, c := range t.clients {
		t.app.close(c)
	}
}

// runOnce runs the command under one lease.
func (t *task) runOnce(ctx context.Context) error {
	sigs := listen()
	defer sigs.stop()
	waiting, stop := sigs.bound(ctx)
	defer stop()
	if err := t.open(waiting); err != nil {
		t.close()
		return interrupted(waiting, err)
	}
	result, orderly := t.term(waiting, stop, sigs)
	if orderly { // else the end of this process is enough
		t.close()
	}
	return result
}

// term waits for the lock and runs the command under it. waiting bounds the wait; stop
// ends it, so that signals are the command's. orderly is false if the backend has
// not acknowledged that the lock is free.
func (t *task) term(waiting context.Context, stop func(), sigs *signals) (result error, orderly bool) {
	l, err := t.acquire(waiting)
	if err != nil {
		return interrupted(waiting, notAcquired(t.name, t.f.wait, err)), true
	}
	acquired := time.Now()
	guard := newGuard(t.ttl, t.grace)
	if err := ready(waiting, l, guard); err != nil {
		_ = t.unlock(l) // the command was not run: nobody needs to know more
		return interrupted(waiting, err), true
	}
	stop() // from here on signals are the command's
	if by := interrupted(waiting, context.Cause(waiting)); codeOf(by) > codeSignal {
		_ = t.unlock(l) // the command was not run: nobody needs to know more
		return by, true
	}
	result = t.supervise(sigs, l, guard, t.path, t.argv)
	if guard.ending {
		t.giveUp(l)
		return result, false
	}
	if err := t.unlock(l); err != nil {
		if isFailure(err) && !isFailure(result) {
			return err, false
		}
		return result, false
	}
	for _, c := range t.clients {
		t.keep(c, acquired.Add(t.f.minHold.d), sigs)
	}
	return result, true
}

// acquire waits for the lock as --wait says.
func (t *task) acquire(ctx context.Context) (*lock.Lease, error) {
	wait := t.f.wait
	if wait.given && wait.d == 0 {
		return t.mutex.TryLock(ctx)
	}
	if wait.given {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait.d)
		defer cancel()
	}
	done := t.notices.start(ctx, t.clients)
	l, err := t.mutex.Lock(ctx)
	done(l)
	return l, err
}
