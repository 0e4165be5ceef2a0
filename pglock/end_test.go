package pglock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatch: a key is passed on once, when the last grant that was handed over ends. None is after Close.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var statements atomic.Int32
		pass := answer{before: func() { statements.Add(1); time.Sleep(100 * time.Millisecond) }}
		b := scripted(t, pass, pass)
		want := func(when string, sent int32, keys int) {
			t.Helper()
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			if n := statements.Load(); n != sent || len(b.watched) != keys {
				t.Errorf("%s: want %d statements and %d keys watched, got %d and %d", when, sent, keys, n, len(b.watched))
			}
		}
		b.watch(b.key("k"), nil)
		time.Sleep(2 * time.Second)
		b.watch(b.key("k"), nil)
		time.Sleep(provisionalTTL + watchDelay - time.Nanosecond)
		want("before the last one ends", 0, 1)
		time.Sleep(time.Nanosecond)
		want("when it ends", 1, 0)
		time.Sleep(time.Minute)
		want("later", 1, 0)

		b.watch(b.key("k"), nil)
		time.Sleep(provisionalTTL)
		b.watch(b.key("l"), nil)
		b.watch(b.key("n"), []string{"another", b.process})
		time.Sleep(watchDelay)
		want("the next one", 2, 1)
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		b.watch(b.key("m"), nil)
		time.Sleep(time.Minute)
		if n := statements.Load(); n != 2 {
			t.Errorf("after Close: want no statement, got %d", n-2)
		}
	})
}
