package workload

import (
	"context"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/memlock"
)

// TestLossEndsTrust: the end of trust by a loss is recorded when the observer reports it, not when the worker looks at
// its lease.
func TestLossEndsTrust(t *testing.T) {
	c, err := lock.Open(t.Context(), "mem://workload-loss", Options(time.Minute)...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	ops := make(chan Op, 10)
	w := &worker{Client: New(Config{Keys: []string{"a"}, TTL: time.Minute, Fast: 1}, c, &Fence{}, func(op Op) { ops <- op })}
	w.inside, w.granted = &w.Client.inside[0], &w.Client.granted[0]
	h, err := w.acquire(t.Context(), 0, lock.Share{}, "lock", c.Mutex("a").Lock)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Break(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Kind{Acquired, Ending} {
		select {
		case op := <-ops:
			if op.Kind != want || op.Hold != h.op.Hold {
				t.Fatalf("got %s of hold %d, want %s of hold %d", op.Kind, op.Hold, want, h.op.Hold)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no record %q within 30s", want)
		}
	}
}
