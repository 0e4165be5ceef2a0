//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// The guard, at chosen instants: a lease of 10 s, so a lead of 100 ms.
func TestGuard(t *testing.T) {
	t.Parallel()
	t0 := time.Now()
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	type step struct {
		now, expires float64 // seconds; expires < 0: the lease does not expire
		lost         bool
		want         action
		again        float64 // < 0: never
	}
	for name, c := range map[string]struct {
		grace time.Duration
		steps []step
	}{
		"renewed in time": {2 * time.Second, []step{
			{0, 10, false, actNone, 7.9}, {7.9, 13, false, actNone, 10.9},
		}},
		"not renewed": {2 * time.Second, []step{
			{0, 10, false, actNone, 7.9}, {7.9, 10, false, actTerm, 9.9}, {8, 10, false, actNone, 9.9},
			{9.9, 10, false, actKill, -1}, {10, 10, true, actNone, -1},
		}},
		"renewed too late": {2 * time.Second, []step{ // it has been told to end
			{8, 10, false, actTerm, 9.9}, {8.5, 18, false, actNone, 9.9}, {9.9, 18, false, actKill, -1},
		}},
		"broken": {2 * time.Second, []step{
			{3, 10, true, actTerm, 5}, {5, 10, true, actKill, -1},
		}},
		"broken near the end": {5 * time.Second, []step{
			{4, 10, true, actTerm, 9}, {9, 10, true, actKill, -1},
		}},
		"broken past the time for TERM": {5 * time.Second, []step{
			{6, 10, true, actTerm, 9.9}, {9.9, 10, true, actKill, -1},
		}},
		"stopped past the end": {2 * time.Second, []step{
			{30, 10, true, actKill, -1}, {31, 10, true, actNone, -1},
		}},
		"no grace": {0, []step{
			{0, 10, false, actNone, 9.9}, {9.9, 10, false, actKill, -1},
		}},
		"does not expire": {2 * time.Second, []step{
			{0, -1, false, actNone, -1}, {50, -1, true, actTerm, 52}, {52, -1, true, actKill, -1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(10*time.Second, c.grace)
			for i, s := range c.steps {
				var expires, again time.Time
				if s.expires >= 0 {
					expires = at(s.expires)
				}
				if s.again >= 0 {
					again = at(s.again)
				}
				var lost error
				if s.lost {
					lost = lock.ErrLost
				}
				act, next := g.check(at(s.now), expires, lost)
				if act != s.want || !next.Equal(again) {
					t.Fatalf("step %d: action %d, again after %v; want %d, %v", i, act, next.Sub(t0), s.want, again.Sub(t0))
				}
			}
		})
	}
}

// With the default grace a lease may miss the renewal that is due at a third of
// it, and one more, before its command is ended.
func TestDefaultGraceLeavesTimeToRenew(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{50 * time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		g := newGuard(ttl, defaultGrace(ttl))
		margin := min(max(ttl/20, 10*time.Millisecond), 500*time.Millisecond) + ttl/1000
		if left := ttl - margin - g.lead - g.grace; left < ttl/3+ttl/12 {
			t.Errorf("ttl %v: told to end after %v", ttl, left)
		}
		if g.grace > maxGrace(ttl) {
			t.Errorf("ttl %v: grace %v is refused", ttl, g.grace)
		}
	}
}

func TestChooseURL(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	odd := filepath.Join(home, "with space%20#?")
	for _, c := range []struct {
		flag string
		env  map[string]string
		want string
		code int
	}{
		{"mem://a", map[string]string{"LOCK_URL": "mem://b", "HOME": home}, "mem://a", 0},
		{"", map[string]string{"LOCK_URL": "mem://b", "HOME": home}, "mem://b", 0},
		{"", map[string]string{"HOME": home}, "file://" + home + "/.local/state/interlock", 0},
		{"", map[string]string{"HOME": home, "XDG_STATE_HOME": home + "/x"}, "file://" + home + "/x/interlock", 0},
		{"", map[string]string{"HOME": home, "XDG_STATE_HOME": "relative"}, "file://" + home + "/.local/state/interlock", 0},
		{"", map[string]string{"HOME": odd}, "file://" + home + "/with%20space%2520%23%3F/.local/state/interlock", 0},
		{"", map[string]string{"HOME": "/dev/null"}, "", codeUnavailable},
	} {
		got, err := chooseURL(c.flag, func(k string) string { return c.env[k] })
		if got != c.want || codeOf(err) != c.code {
			t.Errorf("%q %v: %q, %v; want %q", c.flag, c.env, got, err, c.want)
		}
	}
	info, err := os.Stat(filepath.Join(home, "x", "interlock"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, mode %v", err, info.Mode())
	}
}

func TestNoHome(t *testing.T) {
	t.Parallel()
	code, _, stderr := lockctl(t, []string{"HOME=", "XDG_STATE_HOME="}, "list")
	if code != codeUsage || stderr == "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"dial redis://user:pw@host:1: refused":                    "dial redis://***@host:1: refused",
		`unknown command "redis://:p@ss@host/0"`:                  `unknown command "redis://***@host/0"`,
		"redis+sentinel://a:b@h1,h2/m":                            "redis+sentinel://***@h1,h2/m",
		"file:///var/lib/locks: no such folder":                   "file:///var/lib/locks: no such folder",
		"write to me@example.com about redis://host:6379/0 first": "write to me@example.com about redis://host:6379/0 first",
	} {
		if got := redact(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{exitStatus(7), 7},
		{&lock.Error{Op: "lock", Err: &lock.LockedError{}}, codeNotAcquired},
		{&lock.Error{Op: "lock", Err: errors.Join(lock.ErrUncertain, os.ErrDeadlineExceeded)}, codeUnavailable},
		{&lock.Error{Op: "open", Err: os.ErrDeadlineExceeded}, codeUnavailable},
		{&lock.Error{Op: "hold", Err: lock.ErrLost}, codeLost},
		{&lock.Error{Op: "lock", Err: lock.ErrInvalid}, codeUsage},
		{&failure{126, lock.ErrLost}, 126},
		{errors.New("x"), codeFailed},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}
