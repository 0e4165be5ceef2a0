package conformanceclock_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/interlock-go/lock/conformance/conformanceclock"
)

const printVariable = "INTERLOCK_PRINT_CLOCK"

func TestMain(m *testing.M) {
	if os.Getenv(printVariable) != "" {
		printClock()
		return
	}
	os.Exit(m.Run())
}

// printClock prints the wall clock, and how it and the monotonic clock advance in 100 ms, while other goroutines read
// them and memory is collected.
func printClock() {
	stop := make(chan struct{})
	for range 2 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = time.Now()
					_ = make([]byte, 1<<10)
				}
			}
		}()
	}
	begun := time.Now()
	wall := begun.UnixNano()
	time.Sleep(100 * time.Millisecond)
	end := time.Now()
	runtime.GC()
	close(stop)
	fmt.Println(end.Unix(), end.UnixNano()-wall, int64(end.Sub(begun)))
}

func TestWorker(t *testing.T) {
	self := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), printVariable+"=1")
		return cmd
	}
	worker := conformanceclock.Worker(self)
	if worker == nil {
		t.Skip("the clock of a process cannot be changed on", runtime.GOOS, runtime.GOARCH)
	}
	for _, off := range []time.Duration{0, time.Hour, -time.Hour, 300 * 24 * time.Hour} {
		out, err := worker(off).Output()
		if err != nil {
			t.Fatalf("off by %v: %v", off, err)
		}
		var unix, wall, monotonic int64
		if _, err := fmt.Sscan(string(out), &unix, &wall, &monotonic); err != nil {
			t.Fatalf("off by %v: it printed %q: %v", off, out, err)
		}
		if d := unix - time.Now().Unix() - int64(off/time.Second); d < -30 || d > 30 {
			t.Errorf("off by %v: the wall clock is %d s off that", off, d)
		}
		for what, d := range map[string]int64{"wall": wall, "monotonic": monotonic} {
			if d := time.Duration(d); d < 100*time.Millisecond || d > 10*time.Second {
				t.Errorf("off by %v: in 100 ms the %s clock advanced by %v", off, what, d)
			}
		}
	}
	cmd := self()
	cmd.Env = append(cmd.Env, "INTERLOCK_CONFORMANCE_CLOCK=soon")
	if out, err := cmd.CombinedOutput(); err == nil || string(out) != "conformanceclock: INTERLOCK_CONFORMANCE_CLOCK "+strconv.Quote("soon")+": want seconds\n" {
		t.Errorf("a clock that is wrong by %q: want it refused, got %s, %v", "soon", out, err)
	}
}
