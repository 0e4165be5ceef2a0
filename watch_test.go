package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memlock"
)

// watchable is a service that notifies once of each watch.
type watchable struct{ *memlock.Backend }

func (watchable) WatchChanges(ctx context.Context, _ string, changed func()) error {
	changed()
	<-ctx.Done()
	return ctx.Err()
}

// WatchChanges watches through local hand-off until its context ends or the client is closed.
func TestWatchChanges(t *testing.T) {
	for end, want := range map[string]error{"context": context.Canceled, "close": lock.ErrClosed} {
		synctest.Test(t, func(t *testing.T) {
			c, err := lock.New(watchable{memlock.New()}, lock.WithLocalHandOff())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			changed, ended := make(chan struct{}, 1), make(chan error, 1)
			go func() { ended <- c.WatchChanges(ctx, "k", func() { changed <- struct{}{} }) }()
			<-changed
			time.Sleep(time.Minute) // longer than any bound of a request
			if len(ended) > 0 || len(changed) > 0 {
				t.Fatalf("after a minute: want it to watch, got %d ends and %d more watches", len(ended), len(changed))
			}
			if end == "context" {
				cancel()
			} else if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("%s: want %v, got %v", end, want, err)
			}
			_ = c.Close(t.Context())
		})
	}
}

func TestWatchChangesRefused(t *testing.T) {
	c, err := lock.New(memlock.New())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for name, want := range map[string]error{"k": errors.ErrUnsupported, "": lock.ErrInvalid} {
		if err := c.WatchChanges(t.Context(), name, func() { t.Error("changed was called") }); !errors.Is(err, want) {
			t.Errorf("of %q: want %v, got %v", name, want, err)
		}
	}
}
