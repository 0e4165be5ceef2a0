package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// ready waits until a lease, which a busy service may at first have granted for
// less than its TTL, is certain for so long that a command can be started.
func ready(ctx context.Context, l *lock.Lease, g *guard) error {
	for renewed := 0; l.Err() == nil && !g.enough(time.Now(), l.Expires()); {
		if renewed == 3 {
			return &failure{codeUnavailable, fmt.Errorf("the command was not run: the service answers too slowly for so short a lease; use a longer --ttl or a shorter --grace")}
		}
		err := l.Check(ctx)
		switch {
		case err == nil:
			renewed++
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
		return &failure{codeNotAcquired, fmt.Errorf("the command was not run: %w", err)}
	}
	return nil
}

// supervise runs the command until its end, or ends it with its lock.
func (a *app) supervise(sigs *signals, l *lock.Lease, g *guard, path string, argv []string) error {
	p, err := start(path, argv, environ(os.Environ(), l), sigs)
	if err != nil {
		return &failure{startCode(err), fmt.Errorf("cannot run %q: %w", argv[0], unwrapExec(err))}
	}
	defer p.release()
	var (
		done    = l.Done()
		timer   = time.NewTimer(0)
		endedBy string
	)
	defer timer.Stop()
	for {
		act, again := g.check(time.Now(), l.Expires(), l.Err())
		switch act {
		case actTerm, actKill:
			if endedBy == "" {
				endedBy = lossText(l)
				a.say("lost", fmt.Sprintf("%s; ending the command", endedBy), map[string]any{"name": l.Name()})
			}
			if act == actTerm {
				p.terminate()
			} else {
				p.kill()
			}
			continue // what is next?
		case actNone:
		}
		if g.ending {
			done = nil
		}
		if again.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(again))
		}
		select {
		case <-timer.C:
		case <-done:
		case s := <-sigs.ch:
			if !isContinue(s) {
				sigs.deadly = sigs.deadly || slices.Contains(deadlySignals, s)
				p.signal(s)
			} else if l.Err() == nil {
				p.resume()
			}
		case s := <-p.stopped:
			switch {
			case !p.suspend(s):
			case l.Err() != nil:
				p.kill() // it must not run a moment longer: somebody else may hold the lock
			default:
				p.resume()
			}
		case r := <-p.exited:
			if g.ending {
				p.drain(g.killAt)
				return &failure{codeLost, fmt.Errorf("%s; the command was ended", endedBy)}
			}
			return r
		}
	}
}

// lossText says why the command is ended.
func lossText(l *lock.Lease) string {
	if err := l.Err(); err != nil {
		return strings.TrimPrefix(err.Error(), "lock: ")
	}
	return fmt.Sprintf("hold %q: not renewed, and certain for %s more only", l.Name(), round(time.Until(l.Expires())))
}

// unlock frees the lock. It returns a failure if the lock had been lost: the command
// may then have run beside another.
func (a *app) unlock(l *lock.Lease) error {
	err := l.Unlock(context.Background()) // bounded by itself
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lock.ErrLost):
		return &failure{codeLost, fmt.Errorf("the lock had been lost when the command ended: %w", err)}
	}
	a.say("warning", fmt.Sprintf("the lock may stay taken until its TTL has passed: %v", err), map[string]any{"name": l.Name()})
	return errNotFreed
}

// errNotFreed: the user has been told, and the command's result is not changed by it.
var errNotFreed = errors.New("not freed")

// giveUp frees a lock whose service could not be reached, should it be reached
// again before the lock is free by itself.
func (a *app) giveUp(l *lock.Lease) {
	freed := make(chan struct{})
	go func() {
		_ = l.Unlock(context.Background()) // that the lock was lost has been said
		close(freed)
	}()
	left := time.Until(l.Expires())
	if l.Expires().IsZero() {
		left = closeTimeout
	}
	select {
	case <-freed:
	case <-time.After(left):
	}
}

// keep waits until the minimum hold is over where only a living process can keep
// the lock. Elsewhere closing the client leaves the lock to the service.
func (a *app) keep(c *lock.Client, until time.Time, sigs *signals) {
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

// isFailure tells whether lockctl has something to say that is more than how the
// command ended.
func isFailure(err error) bool {
	var f *failure
	return errors.As(err, &f)
}

func (a *app) close(c *lock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		a.say("warning", err.Error(), nil)
	}
}

// environ is the command's environment.
func environ(env []string, l *lock.Lease) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"LOCK_NAME", "LOCK_TOKEN", "LOCK_TOKEN_OLD", "LOCK_TOKEN_NEW", "LOCK_OWNER", "LOCK_OWNER_OLD", "LOCK_OWNER_NEW"}, name)
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
	}
	return env
}

// unwrapExec drops the command's name, which the message has already.
func unwrapExec(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
