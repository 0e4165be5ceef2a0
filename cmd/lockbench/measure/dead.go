package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

// startLimit bounds the start of a process and its first request.
const startLimit = 30 * time.Second

// probeDead measures the time from Unlock until a waiter has the lock, behind dead waiters
// of one process and of N processes. A limit of two TTLs and 10 s is the result if the
// waiter did not get it. Processes are stopped only where a lease has a TTL.
func probeDead(ctx context.Context, m *Measurement, t Target, s Scenario) error {
	waits := make(chan struct{}, 1)
	holder, err := lock.Open(ctx, t.URL, lock.WithLogger(nil))
	if err != nil {
		return err
	}
	defer closeClient(ctx, holder)
	live, err := lock.Open(ctx, t.URL, lock.WithLogger(nil), lock.WithObserver(&lock.Observer{Waiting: func(context.Context, lock.Event) { waits <- struct{}{} }}))
	if err != nil {
		return err
	}
	defer closeClient(ctx, live)
	d := &deadMeasurement{ctx: ctx, t: t, holder: holder, live: live, waits: waits, ttl: ttlOf(holder, s.TTL)}
	ways := []string{"killed", "stopped"}
	if holder.Capabilities().Loss == backend.LossProcess || !canStop {
		ways = ways[:1]
	}
	for _, how := range ways {
		for _, shape := range []struct {
			name             string
			processes, lines int
		}{{"one process", 1, s.N}, {"processes", s.N, 1}} {
			took, err := d.measure(shape.processes, shape.lines, how == "stopped")
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				m.Errors++
				m.FirstErr, err = fmt.Sprintf("%s %s: not granted within %v", shape.name, how, took.Round(time.Second)), nil
			}
			if err != nil {
				return err
			}
			m.figure(fmt.Sprintf("seconds, %s %s", shape.name, how), took.Seconds())
		}
	}
	m.figure(failures, float64(m.Errors))
	return nil
}

func closeClient(ctx context.Context, c *lock.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	_ = c.Close(ctx) // the measurement is complete
}

// deadMeasurement has the clients of a measurement.
type deadMeasurement struct {
	ctx          context.Context //nolint:containedctx // of one measurement
	t            Target
	holder, live *lock.Client
	waits        chan struct{} // the live client waits
	ttl          time.Duration
}

// measure starts processes with a number of waiters each, and a live waiter behind them,
// ends the processes, releases the lock and returns how long the live waiter then waits.
func (d *deadMeasurement) measure(processes, waiters int, stop bool) (time.Duration, error) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	name := "bench-dead-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	held, err := d.holder.Mutex(name, lock.WithTTL(d.ttl)).Lock(ctx)
	if err != nil {
		return 0, err
	}
	started := make([]*exec.Cmd, processes)
	defer func() {
		for _, p := range started {
			if p != nil {
				_ = p.Process.Kill()
				_ = p.Wait()
			}
		}
	}()
	err = inParallel(ctx, processes, 8, func(ctx context.Context, i int) (err error) {
		started[i], err = startWaiters(ctx, d.t.URL, name, d.ttl, waiters)
		return err
	})
	if err != nil {
		return 0, errors.Join(err, held.Unlock(ctx))
	}
	limit := 2*d.ttl + 10*time.Second
	granted := make(chan error, 1)
	var got time.Time
	bounded, done := context.WithTimeout(ctx, limit+startLimit)
	defer done()
	go func() {
		l, err := d.live.Mutex(name, lock.WithTTL(d.ttl)).Lock(bounded)
		got = time.Now()
		if err == nil {
			err = l.Unlock(context.WithoutCancel(ctx))
		}
		granted <- err
	}()
	select {
	case <-d.waits:
	case err := <-granted:
		if err == nil {
			err = errors.New("a lock that is held was granted to a waiter")
		}
		return 0, errors.Join(err, held.Unlock(ctx))
	}
	for _, p := range started {
		if stop {
			err = stopProcess(p.Process)
		} else {
			err = p.Process.Kill()
		}
		if err != nil {
			break
		}
	}
	released := time.Now()
	if err = errors.Join(err, held.Unlock(ctx)); err == nil {
		limited := time.AfterFunc(limit, done)
		defer limited.Stop()
		if err = <-granted; errors.Is(err, context.Canceled) && d.ctx.Err() == nil {
			return limit, context.DeadlineExceeded
		}
		return got.Sub(released), err
	}
	return 0, err
}

// startWaiters starts a process with a number of waiters of a lock.
func startWaiters(ctx context.Context, url, name string, ttl time.Duration, waiters int) (*exec.Cmd, error) {
	cmd := conformance.Self(url)()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	failed := time.AfterFunc(startLimit, func() { _ = cmd.Process.Kill() })
	defer failed.Stop()
	_, err = io.WriteString(in, strings.Repeat(fmt.Sprintf("lock %s %v\n", name, ttl), waiters))
	lines, waiting := bufio.NewScanner(out), 0
	for err == nil && waiting < waiters {
		switch {
		case !lines.Scan():
			err = fmt.Errorf("a process did not begin to wait within %v", startLimit)
		case lines.Text() == "waits":
			waiting++
		case strings.HasPrefix(lines.Text(), "error"), strings.HasPrefix(lines.Text(), "granted"):
			err = fmt.Errorf("a process with waiters: %s", lines.Text())
		case ctx.Err() != nil:
			err = ctx.Err()
		}
	}
	if err == nil {
		go func() { _, _ = io.Copy(io.Discard, out) }() // a process that is not read stops
	}
	return cmd, err
}
