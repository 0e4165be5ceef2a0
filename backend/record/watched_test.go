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
			w.wait(key, time.Second)
			w.look(key, seen)
		}
		w.look("used", seen)
		w.look("unused", seen)
		time.Sleep(time.Second)
		for i := range 5 * mostSights {
			w.look(strconv.Itoa(i), seen)
			if i%(mostSights/2) == 0 {
				w.look("used", seen)
			}
			if n := len(w.present) + len(w.old); n > 2*(mostSights+waiters) {
				t.Fatalf("%d sights after %d names", n, i)
			}
		}
		for key, want := range map[string]time.Duration{"used": time.Second, "waits 0": time.Second, "waits 99": time.Second, "unused": 0} {
			if got := w.look(key, seen); got != want {
				t.Errorf("%q: want it seen unchanged for %v, got %v", key, want, got)
			}
		}
		w.forgo("waits 0")
		w.forget("waits 1")
		if got := w.look("waits 1", seen); got != 0 {
			t.Errorf("a key that was forgotten: unchanged for %v", got)
		}
		for i := range 5 * mostSights {
			w.look(strconv.Itoa(i), seen)
		}
		if got := w.look("waits 0", seen); got != 0 {
			t.Errorf("a key for which the client waits no more: unchanged for %v", got)
		}
	})
}

// A process that releases many locks remembers some of them.
func TestFreedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f freed
		for i := range 3 * mostFreed {
			f.add(strconv.Itoa(i), left{version: "1", until: time.Now().Add(time.Minute)})
			if len(f.all) > mostFreed {
				t.Fatalf("%d records after %d releases", len(f.all), i+1)
			}
		}
		last := strconv.Itoa(3*mostFreed - 1)
		if r, ok := f.take(last); !ok || r.version != "1" {
			t.Errorf("want the last one, got %+v, %v", r, ok)
		}
		if _, ok := f.take(last); ok {
			t.Error("a record is used twice")
		}
	})
}
