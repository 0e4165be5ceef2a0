package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

// signals receives the signals that end a wait or are forwarded to the command.
type signals struct {
	ch        chan os.Signal
	forwarded bool // an ending signal was forwarded to the command
}

// listen subscribes to the signals. A signal that was ignored when the program began
// (as by nohup) remains ignored, for the command too.
func listen() *signals {
	s := &signals{ch: make(chan os.Signal, 16)}
	notify(s.ch, endingSignals)
	notify(s.ch, otherSignals)
	return s
}

// notify is signal.Notify without the signals that are ignored.
func notify(ch chan os.Signal, sigs []os.Signal) {
	sigs = slices.DeleteFunc(slices.Clone(sigs), signal.Ignored)
	if len(sigs) > 0 { // Notify without signals means all
		signal.Notify(ch, sigs...)
	}
}

func (s *signals) stop() { signal.Stop(s.ch) }

// signalError is the cause of a context that a signal ended.
type signalError struct{ sig os.Signal }

func (e *signalError) Error() string { return fmt.Sprintf("ended by a signal (%v)", e.sig) }

// bound returns a context that an ending signal ends; its cause is a signalError.
// After stop has returned, signals remain in the channel.
func (s *signals) bound(ctx context.Context) (bounded context.Context, stop func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	quit := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case sig := <-s.ch:
				if slices.Contains(endingSignals, sig) {
					cancel(&signalError{sig})
					return
				}
			case <-quit:
				return
			}
		}
	})
	var once sync.Once
	return bounded, func() {
		once.Do(func() {
			close(quit)
			reader.Wait()
			cancel(nil)
		})
	}
}

// UntilSignal calls f with a context that ends at SIGINT, SIGTERM, SIGHUP or SIGQUIT.
// If f returns an error after signal n, or has not returned a moment after closeTimeout,
// because its output is not read, UntilSignal returns an error with code 128+n.
func UntilSignal(ctx context.Context, f func(context.Context) error) error {
	s := listen()
	defer s.stop()
	ctx, stop := s.bound(ctx)
	defer stop()
	result := make(chan error, 1)
	go func() { result <- f(ctx) }()
	select {
	case err := <-result:
		return interrupted(ctx, err)
	case <-ctx.Done():
	}
	select {
	case err := <-result:
		return interrupted(ctx, err)
	case <-time.After(closeTimeout + time.Second):
		return interrupted(ctx, context.Cause(ctx))
	}
}

// interrupted replaces err by the signal that ended ctx, if a signal did.
func interrupted(ctx context.Context, err error) error {
	var by *signalError
	if err == nil || !errors.As(context.Cause(ctx), &by) {
		return err
	}
	code := ExitFailed
	if n, ok := by.sig.(syscall.Signal); ok {
		code = ExitSignal + int(n)
	}
	return WithCode(code, by)
}
