package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/interlock-go/lock"
)

// workerVariable is the environment variable with the settings of a worker process.
const workerVariable = "COUNTER_WORKER"

// worker is one of the processes. It writes lines such as "ready", "read" and "done", and
// waits for a line after each of them.
type worker struct {
	settings
	in     *bufio.Reader
	out    io.Writer
	number numberFile
}

func work(ctx context.Context, s settings, in io.Reader, out io.Writer) error {
	w := worker{settings: s, in: bufio.NewReader(in), out: out, number: numberFile(s.Number)}
	guarded := func(ctx context.Context, step func(context.Context) error) error { return step(ctx) }
	if w.Lock.URL != "" {
		c, err := lock.OpenConfig(ctx, w.Lock)
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		m := c.Mutex("counter")
		guarded = func(ctx context.Context, step func(context.Context) error) error { return lock.Do(ctx, m, step) }
	}

	if err := w.report("ready"); err != nil {
		return err
	}
	done := 0
	for range w.Each {
		err := guarded(ctx, func(ctx context.Context) error {
			changed, err := w.step(ctx)
			if changed {
				done++
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return w.report(fmt.Sprintf("done %d", done))
}

// step reads the number, pauses, and writes the next one. It is correct only if no other
// worker does so at the same time.
func (w *worker) step(ctx context.Context) (changed bool, err error) {
	n, err := w.number.read()
	if err != nil {
		return false, err
	}
	if w.Lockstep {
		if err := w.report("read"); err != nil {
			return false, err
		}
	}
	select {
	case <-time.After(w.Pause):
	case <-ctx.Done(): // the lock is lost: a write could undo one of the next holder
		return false, context.Cause(ctx)
	}
	next := n + 1
	if w.Oversell {
		if next = n - order; next < 0 {
			return false, nil
		}
	}
	if err := w.number.write(next); err != nil {
		return false, err
	}
	if w.Lockstep {
		return true, w.report("written")
	}
	return true, nil
}

// report writes a step and waits until the worker may continue.
func (w *worker) report(step string) error {
	if _, err := fmt.Fprintln(w.out, step); err != nil {
		return err
	}
	_, err := w.in.ReadString('\n')
	return err
}
