package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// signals are those that lockctl receives on behalf of its command.
type signals struct {
	ch     chan os.Signal
	deadly bool // one that ends lockctl was passed on to the command
}

// listen takes the signals that end a wait, or are passed on. One that was ignored
// when lockctl was started (as by nohup) stays ignored, for the command too.
func listen() *signals {
	s := &signals{ch: make(chan os.Signal, 16)}
	notify(s.ch, deadlySignals)
	notify(s.ch, plainSignals)
	return s
}

// notify is signal.Notify without the signals that are ignored.
func notify(ch chan os.Signal, sigs []os.Signal) {
	sigs = slices.DeleteFunc(slices.Clone(sigs), signal.Ignored)
	if len(sigs) > 0 { // none would mean all
		signal.Notify(ch, sigs...)
	}
}

func (s *signals) stop() { signal.Stop(s.ch) }

// signalError is the cause of a context that a signal ended.
type signalError struct{ sig os.Signal }

func (e *signalError) Error() string { return fmt.Sprintf("ended by a signal (%v)", e.sig) }

// bound returns a context that ends when one of the deadly signals comes. After
// stop has returned, signals stay in the channel; should one have come before,
// context.Cause tells it.
func (s *signals) bound(ctx context.Context) (bounded context.Context, stop func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	quit := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			select {
			case sig := <-s.ch:
				if slices.Contains(deadlySignals, sig) {
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
			reading.Wait()
			cancel(nil)
		})
	}
}

// untilSignal returns a context that a deadly signal ends.
func untilSignal(ctx context.Context) (context.Context, func()) {
	s := listen()
	ctx, stop := s.bound(ctx)
	return ctx, func() { stop(); s.stop() }
}

// interrupted makes an error tell of the signal that caused it, if one did.
func interrupted(ctx context.Context, err error) error {
	var by *signalError
	if err == nil || !errors.As(context.Cause(ctx), &by) {
		return err
	}
	code := codeFailed
	if n, ok := by.sig.(syscall.Signal); ok {
		code = codeSignal + int(n)
	}
	return &failure{code, by}
}
