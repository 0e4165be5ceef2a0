package lockcmd

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/migrate"
)

// task is a command that runs under a lock.
type task struct {
	*App
	f     *runFlags
	name  string
	path  string // of the command
	argv  []string
	urls  []string // of the services: one, or during a migration the old and the new
	ttl   time.Duration
	grace time.Duration

	clients []*lock.Client // of urls
	mutex   lock.Mutex
	notices *waitNotice
}

// newTask checks the flags and the command before it opens a client: a command that
// cannot run must not delay other clients.
func (a *App) newTask(f *runFlags, name string, argv []string) (*task, error) {
	surviveBrokenPipes()
	t := &task{App: a, f: f, name: name, argv: argv}
	var err error
	if t.path, err = exec.LookPath(argv[0]); err != nil {
		return nil, cannotRun(argv[0], err)
	}
	if err = f.share.check(); err != nil {
		return nil, err
	}
	if t.urls, err = a.lockURLs(f); err != nil {
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
		return nil, Usagef("invalid --grace %v: want 0 to %v, half of the TTL of %v", t.grace, maxGrace(t.ttl), t.ttl)
	}
	return t, nil
}

// lockURLs returns the URLs at which the lock must be acquired.
func (a *App) lockURLs(f *runFlags) ([]string, error) {
	if (f.migrateTo == "") != (f.phase == "") {
		return nil, Usagef("--migrate-to and --phase go together: want both or none")
	}
	url, err := a.URL()
	if err != nil || f.phase == "" {
		return []string{url}, err
	}
	var phase migrate.Phase
	if err := phase.UnmarshalText([]byte(f.phase)); err != nil {
		return nil, Usagef("invalid --phase %q: want old, both or new", f.phase)
	}
	if url == f.migrateTo {
		return nil, Usagef("--migrate-to is the URL of the lock already")
	}
	for _, u := range []string{url, f.migrateTo} { // also the URL that this phase does not open
		if _, err := backend.ParseURL(u); err != nil {
			return nil, err
		}
	}
	switch phase {
	case migrate.PhaseOld:
		return []string{url}, nil
	case migrate.PhaseNew:
		return []string{f.migrateTo}, nil
	}
	return []string{url, f.migrateTo}, nil
}

// open opens a client of each URL.
func (t *task) open(ctx context.Context) error {
	t.notices = t.newWaitNotice(t.name)
	var ms []lock.Mutex
	for i, url := range t.urls {
		opts := []lock.Option{lock.WithTTL(t.ttl), lock.WithMinHold(t.f.minHold.d),
			lock.WithRequire(backend.RequireMachineScope), // a smaller scope excludes no other process
			lock.WithObserver(t.notices.observer(i))}
		if t.f.wait.given {
			opts = append(opts, lock.WithWait(t.f.wait.d)) // instead of that of the URL
		}
		if t.f.as != "" {
			opts = append(opts, lock.WithMetadata(t.f.as))
		}
		c, err := t.openShared(ctx, inherited(url), opts...)
		if err != nil {
			return err
		}
		t.clients = append(t.clients, c)
		ms = append(ms, t.f.share.mutex(c, t.name))
	}
	t.mutex = ms[0]
	if len(ms) > 1 {
		t.mutex = migrate.New(ms[0], ms[1], migrate.PhaseBoth)
	}
	return nil
}

// Pauses between two attempts to open a client with --wait-for-service.
const (
	minOpenPause = 50 * time.Millisecond
	maxOpenPause = 500 * time.Millisecond
)

// openWithin opens a client of each URL, and repeats that within --wait-for-service while a
// service does not answer. If it fails, no client is open.
func (t *task) openWithin(ctx context.Context) error {
	limit := time.Duration(t.f.service)
	deadline := time.Now().Add(limit)
	for pause := minOpenPause; ; pause = min(2*pause, maxOpenPause) {
		attempt, cancel := ctx, func() {}
		if limit > 0 {
			attempt, cancel = context.WithDeadline(ctx, deadline)
		}
		err := t.open(attempt)
		cancel()
		if err == nil {
			return nil
		}
		t.closeClients()
		if limit == 0 || !retryable(err) || codeOf(err) != ExitUnavailable || ctx.Err() != nil {
			return err
		}
		if time.Until(deadline) <= pause {
			return Unavailable(fmt.Errorf("the service did not answer within %v: %w", limit, err))
		}
		if pause == minOpenPause {
			t.Notice("service", fmt.Sprintf("%v; waiting for the service for up to %v", err, limit), map[string]any{"name": t.name, "limit_ns": limit})
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

func (t *task) closeClients() {
	for _, c := range t.clients {
		t.Close(c)
	}
	t.clients = nil
}

// runOnce runs the command under one lease.
func (t *task) runOnce(ctx context.Context) error {
	sigs := listen()
	defer sigs.stop()
	waiting, stop := sigs.bound(ctx)
	defer stop()
	if err := t.openWithin(waiting); err != nil {
		return interrupted(waiting, err)
	}
	result, released := t.term(waiting, stop, sigs)
	if released { // else the end of this process must suffice
		t.closeClients()
	}
	return result
}

// term acquires the lock and runs the command under it. waiting bounds the wait; stop
// ends it, so that signals go to the command. released is false if the service has not
// acknowledged that the lock is free.
func (t *task) term(waiting context.Context, stop func(), sigs *signals) (result error, released bool) {
	l, err := t.acquire(waiting)
	if err != nil {
		return interrupted(waiting, notAcquired(t.name, t.f.wait, err)), true
	}
	acquired := time.Now()
	guard := newGuard(t.ttl, t.grace)
	if err := awaitTrust(waiting, l, guard); err != nil {
		_, _ = t.unlock(l) // err says enough: the command was not run
		return interrupted(waiting, err), true
	}
	stop() // from here on signals go to the command
	if by := interrupted(waiting, context.Cause(waiting)); codeOf(by) > ExitSignal {
		_, _ = t.unlock(l)
		return by, true
	}
	result = t.supervise(sigs, l, guard, t.path, t.argv)
	if guard.ending {
		t.unlockUntilExpired(l)
		return result, false
	}
	lost, released := t.unlock(l)
	if lost != nil && !isOwnError(result) {
		result = lost
	}
	if released {
		for _, c := range t.clients {
			t.awaitMinHold(c, acquired.Add(t.f.minHold.d), sigs)
		}
	}
	return result, released
}

// acquire acquires the lock within the wait limit.
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
