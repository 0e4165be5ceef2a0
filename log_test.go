package lock_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// defaultLog collects all that goes to slog.Default() until the end of the test.
func defaultLog(t *testing.T) *lines {
	old := slog.Default()
	t.Cleanup(func() { slog.SetDefault(old) })
	out := &lines{}
	slog.SetDefault(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	return out
}

// take returns the lines so far, and removes them.
func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// wantLines fails the test unless there is one line for each of want, which it contains.
func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.Contains(got[i], "level=WARN") && strings.Contains(got[i], want[i])
	}
	if !ok {
		t.Errorf("%s: logged %d lines, want %q:\n%s", what, len(got), want, strings.Join(got, ""))
	}
}

// Without WithLogger losses, outages and their ends go to the default logger at the time of
// the line, one line each, and nothing else does.
func TestDefaultLogger(t *testing.T) {
	for name, c := range map[string]struct {
		opts []lock.Option
		off  bool
	}{
		"by default":        {},
		"with an observer":  {opts: []lock.Option{lock.WithObserver(&lock.Observer{})}},
		"off":               {opts: []lock.Option{lock.WithLogger(nil)}, off: true},
		"off, and observed": {opts: []lock.Option{lock.WithLogger(nil), lock.WithObserver(&lock.Observer{})}, off: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &reporting{fake: newFake()}
				client, err := lock.New(f, append(c.opts, lock.WithTTL(ttl))...)
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close(context.Background())
				out := defaultLog(t) // set after the client was opened
				want := func(what string, lines ...string) {
					t.Helper()
					if c.off {
						lines = nil
					}
					wantLines(t, what, out.take(), lines...)
				}

				l := mustLock(t, client.Mutex("taken"))
				if _, err := client.Mutex("taken").TryLock(t.Context()); err == nil {
					t.Fatal("granted twice")
				}
				want("a grant and a refusal")
				f.take("taken", "other", time.Hour)
				<-l.Done()
				synctest.Wait()
				want("a loss", `msg="lock lost" name=taken backend=fake token=1`)

				l = mustLock(t, client.Mutex("survives"))
				start := time.Now()
				f.setSpoil(unanswered(start, start.Add(ttl*3/4)))
				time.Sleep(ttl * 4 / 5)
				want("an outage", `msg="lock renewals fail, will try again"`)
				time.Sleep(ttl)
				want("its end", `msg="lock renewals do not fail any more"`)
				if err := l.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				want("a release")
				f.report("part", errNet)
				f.report("part", nil)
				want("a part of the service", `msg="lock: part" backend=fake err="connection reset"`, `msg="lock: part" backend=fake`)
			})
		})
	}
}

// reporting is a fake that reports the status of a part of its service.
type reporting struct {
	*fake
	report func(what string, err error)
}

func (r *reporting) ReportStatus(report func(what string, err error)) { r.report = report }

var _ backend.StatusReporter = (*reporting)(nil)

// The default logger gets the lines at level Warn of an outage and not those at Debug.
func TestDefaultLoggerInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, f := defaultLog(t), newFake()
		client, err := lock.New(f, lock.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		leases := lockMany(t, client, 10)
		start := time.Now()
		f.setSpoil(unanswered(start, start.Add(ttl*11/10)))
		time.Sleep(4 * ttl)
		runtime.KeepAlive(leases) // else they are reported as forgotten
		lost := `msg="lock lost"`
		wantLines(t, "an outage", out.take(), `msg="lock renewals fail`, lost, lost, lost, `lost=10`)
	})
}

// Waits without a limit that have lasted a minute are one line, and those with a limit none.
func TestOverdueWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := defaultLog(t)
		c, err := lock.New(memlock.New(), lock.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		l := mustLock(t, c.Mutex("k"))
		waiting := func(n int, ctx context.Context, opts ...lock.MutexOption) {
			for range n {
				go func() {
					if l, err := c.Mutex("k", opts...).Lock(ctx); err == nil {
						_ = l.Unlock(context.Background())
					}
				}()
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		waiting(1, short)
		waiting(1, t.Context(), lock.WithWait(time.Hour))
		time.Sleep(2 * time.Minute)
		wantLines(t, "waits with a limit", out.take())
		waiting(100, t.Context())
		time.Sleep(time.Minute - time.Millisecond)
		wantLines(t, "waits that last for less than a minute", out.take())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantLines(t, "a minute", out.take(), `msg="waiting for lock without a limit; WithWait or a context with a deadline bounds it"`)
		time.Sleep(time.Hour)
		wantLines(t, "later", out.take())
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
