package record

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// A client that tries many names remembers some of them, and all for which it waits.
func TestWatchedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watched
		seen := written{version: "1", owner: "a"}
		const waiters = 100
		for i := range waiters {
			key := "waits " + strconv.Itoa(i)
			w.wait(key)
			w.look(key, seen, time.Minute)
		}
		w.look("used", seen, time.Minute)
		w.look("unused", seen, time.Minute)
		time.Sleep(time.Second)
		for i := range 5 * mostSights {
			w.look(strconv.Itoa(i), seen, time.Minute)
			if i%(mostSights/2) == 0 {
				w.look("used", seen, time.Minute)
			}
			if n := len(w.present) + len(w.old); n > 2*(mostSights+waiters) {
				t.Fatalf("%d sights after %d names", n, i)
			}
		}
		for key, want := range map[string]time.Duration{"used": time.Second, "waits 0": time.Second, "waits 99": time.Second, "unused": 0} {
			if got := w.look(key, seen, time.Minute); got != want {
				t.Errorf("%q: want it seen unchanged for %v, got %v", key, want, got)
			}
		}
		w.forgo("waits 0")
		w.forget("waits 1")
		if got := w.look("waits 1", seen, time.Minute); got != 0 {
			t.Errorf("a key that was forgotten: unchanged for %v", got)
		}
		for i := range 5 * mostSights {
			w.look(strconv.Itoa(i), seen, time.Minute)
		}
		if got := w.look("waits 0", seen, time.Minute); got != 0 {
			t.Errorf("a key for which the client waits no more: unchanged for %v", got)
		}
	})
}
