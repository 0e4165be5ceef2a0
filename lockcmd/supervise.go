package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// awaitTrust waits until the lease is trusted for long enough to start a command. A
// busy service may grant it for less than its TTL at first.
func awaitTrust(ctx context.Context, l *lock.Lease, g *guard) error {
	for renewals := 0; l.Err() == nil && !g.canStart(time.Now(), l.Expires()); {
		if renewals == 3 {
			return WithCode(ExitUnavailable, errors.New("the command was not run: the service is too slow for this TTL; use a longer --ttl or a shorter --grace"))
		}
		err := l.Check(ctx)
		switch {
		case err == nil:
			renewals++
		case ctx.Err() != nil:
			return err
		default:
			select {
			case <-time.After(10 * time.Millisecond):
			case <-l.Done():
			}
		}
	}
	if err := l.Err(); err != nil {
		return WithCode(ExitNotAcquired, fmt.Errorf("the command was not run: %w", err))
	}
	return nil
}

// supervision is a command that runs under a lease.
type supervision struct {
	*App
	sigs  *signals
	lease *lock.Lease
	guard *guard
	proc  *process
	loss  string // why the command is ended; "" while it is not
}

// supervise runs the command until it ends, and ends it if the lock is lost.
func (a *App) supervise(sigs *signals, l *lock.Lease, g *guard, path string, argv []string) error {
	p, err := start(path, argv, environ(os.Environ(), l), sigs)
	if err != nil {
		return cannotRun(argv[0], err)
	}
	defer p.releaseTerminal()
	s := &supervision{App: a, sigs: sigs, lease: l, guard: g, proc: p}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if again := s.enforce(); again.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(again))
		}
		lost := l.Done()
		if g.ending {
			lost = nil
		}
		select {
		case <-timer.C:
		case <-lost:
		case sig := <-sigs.ch:
			s.forward(sig)
		case sig := <-p.stopped:
			s.commandStopped(sig)
		case status := <-p.exited:
			if g.ending {
				p.drain(g.killAt)
				return WithCode(ExitLost, fmt.Errorf("%s; the command was ended", s.loss))
			}
			return status
		}
	}
}

// enforce ends the command as the guard says. It returns when to call enforce again,
// zero for never.
func (s *supervision) enforce() time.Time {
	for {
		act, again := s.guard.check(time.Now(), s.lease.Expires(), s.lease.Err())
		if act == actNone {
			return again
		}
		if act == actTerm {
			s.proc.terminate()
		} else {
			s.proc.kill()
		}
		if s.loss == "" {
			s.loss = lossText(s.lease)
			s.say("lost", s.loss+"; ending the command", map[string]any{"name": s.lease.Name()})
		}
	}
}

// forward sends a signal to the command.
func (s *supervision) forward(sig os.Signal) {
	if !isContinue(sig) {
		s.sigs.forwarded = s.sigs.forwarded || slices.Contains(endingSignals, sig)
		s.proc.signal(sig)
	} else if s.lease.Err() == nil {
		s.proc.resume()
	}
}

// commandStopped handles a stop of the command.
func (s *supervision) commandStopped(sig syscall.Signal) {
	switch {
	case !s.proc.suspend(sig):
	case s.lease.Err() != nil:
		s.proc.kill() // another client may hold the lock
	default:
		s.proc.resume()
	}
}

// lossText returns why the command is ended.
func lossText(l *lock.Lease) string {
	if err := l.Err(); err != nil {
		return strings.TrimPrefix(err.Error(), "lock: ")
	}
	return fmt.Sprintf("hold %q: renewal failed; the lease is valid for another %s", l.Name(), round(time.Until(l.Expires())))
}

// unlock releases the lock. lost is an error if the lock was lost before: the command
// may have run at the same time as that of another holder. released is false if the
// service did not acknowledge the release.
func (a *App) unlock(l *lock.Lease) (lost error, released bool) {
	err := l.Unlock(context.Background()) // Unlock has a limit of its own
	switch {
	case err == nil:
		return nil, true
	case errors.Is(err, lock.ErrLost):
		return WithCode(ExitLost, fmt.Errorf("the lock was lost before the command ended: %w", err)), false
	}
	a.say("warning", fmt.Sprintf("the lock may remain held until its TTL has passed: %v", err), map[string]any{"name": l.Name()})
	return nil, false
}

// unlockUntilExpired releases a lost lock in case its service answers again before
// the lease expires.
func (a *App) unlockUntilExpired(l *lock.Lease) {
	done := make(chan struct{})
	go func() {
		_ = l.Unlock(context.Background()) // the loss is reported already
		close(done)
	}()
	left := time.Until(l.Expires())
	if l.Expires().IsZero() {
		left = closeTimeout
	}
	select {
	case <-done:
	case <-time.After(left):
	}
}

// awaitMinHold waits until the minimum hold is over if the lock needs a living
// process. Otherwise the service keeps the lock after the client is closed.
func (a *App) awaitMinHold(c *lock.Client, until time.Time, sigs *signals) {
	if c.Capabilities().Loss == backend.LossTTL || !time.Now().Before(until) {
		return
	}
	waiting, stop := sigs.bound(context.Background())
	defer stop()
	select {
	case <-time.After(time.Until(until)):
	case <-waiting.Done():
	}
}

// lockVariables are removed from the environment of lockctl: a nested run inherits them.
var lockVariables = []string{
	"LOCK_NAME", "LOCK_TOKEN", "LOCK_TOKEN_OLD", "LOCK_TOKEN_NEW", "LOCK_SLOTS", "LOCK_OWNER", "LOCK_OWNER_OLD", "LOCK_OWNER_NEW",
}

// environ returns the environment of the command.
func environ(env []string, l *lock.Lease) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(lockVariables, name)
	})
	env = append(env, "LOCK_NAME="+l.Name())
	suffixes, parts := []string{""}, l.Parts()
	if len(parts) > 1 { // a migration
		suffixes = []string{"_OLD", "_NEW"}
	}
	for i, p := range parts {
		env = append(env, "LOCK_OWNER"+suffixes[i]+"="+p.Owner())
		if token, ok := p.Token(); ok {
			env = append(env, fmt.Sprintf("LOCK_TOKEN%s=%d", suffixes[i], token))
		}
		if slots := p.Slots(); slots != nil && len(parts) == 1 { // those of two services would differ
			env = append(env, "LOCK_SLOTS="+slotsText(slots))
		}
	}
	return env
}

// cannotRun returns the error for a command that cannot be run. It drops the name
// from err, because the message has it.
func cannotRun(name string, err error) error {
	code := startCode(err)
	var notFound *exec.Error
	var path *os.PathError
	switch {
	case errors.As(err, &notFound):
		err = notFound.Err
	case errors.As(err, &path):
		err = path.Err
	}
	return WithCode(code, fmt.Errorf("cannot run %q: %w", name, err))
}
