//go:build unix

package filelock

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReadCounter(t *testing.T) {
	path := filepath.Join(t.TempDir(), fenceFile)
	for content, want := range map[string]counter{
		"":                         {},
		"rubbish":                  {},
		fmt.Sprintf("%020d\n", 7):  {last: 7},
		fmt.Sprintf("%020d\n1", 7): {last: 7},
		fmt.Sprintf("%020d\n%020d %020d\n", 7, 6, 6):           {last: 7, granted: 6},
		fmt.Sprintf("%020d\n%020d %020d\n", 7, 6, 5):           {last: 7}, // half of a write
		fmt.Sprintf("%020d\n%020d %020d", 7, 6, 6):             {last: 7},
		fmt.Sprintf("%020d %020d %020d\n", 7, 6, 6):            {granted: 6},
		fmt.Sprintf("%020d\n%020d %020d\nmore", 7, 6, 6):       {last: 7, granted: 6},
		fmt.Sprintf("%020d\n", 7) + strings.Repeat("\x00", 42): {last: 7},
		fmt.Sprintf("%d\n", uint64(math.MaxUint64)):            {last: math.MaxUint64},
		fmt.Sprintf("%020x\n%020x %020x\n", 171, 171, 171):     {},
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := readCounter(f); got != want {
			t.Errorf("%q: got %+v, want %+v", content, got, want)
		}
		f.Close()
	}
}

// A waiter whose predecessor has left without a grant still waits for the holder, whatever
// ticket the counter notes.
func TestGrantedIsThePredecessor(t *testing.T) {
	for name, granted := range map[string]func(held uint64) uint64{
		"the holder":            func(held uint64) uint64 { return held },
		"an earlier holder":     func(held uint64) uint64 { return held - 1 },
		"nothing that is known": func(uint64) uint64 { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			b := open1(t, t.TempDir())
			g := try(t, b, "k")
			ctx, cancel := context.WithCancel(t.Context())
			middle := queue(t, ctx, b, "k")
			last := queue(t, t.Context(), b, "k")
			d := lockDir(t, b, "k")
			d.setGranted(granted(g.Token()))
			cancel()
			<-middle
			select {
			case out := <-last:
				t.Fatalf("granted beside the holder: %+v", out)
			case <-time.After(50 * time.Millisecond):
			}
			release(t, g)
			next := served(t, last)
			if got := d.counter().granted; got != next.Token() {
				t.Errorf("noted as granted: %d, want %d", got, next.Token())
			}
			release(t, next)
			wantNoTickets(t, b, "k")
		})
	}
}

// Dead waiters between a holder and a waiter are removed while the lock is held.
func TestDeadTicketsAreRemovedWhileHeld(t *testing.T) {
	dir := t.TempDir()
	b := open1(t, dir)
	g := try(t, b, "k")
	p := start(t, "hold", dir, "k")
	p.expect(t, "waiting")
	out := queue(t, t.Context(), b, "k")
	p.kill()
	eventually(t, "the removal of the dead ticket", func() bool {
		ns, err := lockDir(t, b, "k").numbers(newTicket)
		return err == nil && len(ns) == 2
	})
	release(t, g)
	release(t, served(t, out))
	wantNoTickets(t, b, "k")
}
