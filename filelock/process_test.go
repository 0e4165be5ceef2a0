//go:build unix

package filelock

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestKilledHolderWakesWaiter(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "hold", dir, "k")
	first := p.expect(t, "held")
	out := queue(t, t.Context(), open1(t, dir), "k")
	killed := time.Now()
	p.kill()
	g := served(t, out)
	took := time.Since(killed)
	t.Logf("served %v after SIGKILL was sent", took)
	if canWatch && took > idle/2 {
		t.Error("the waiter was not woken")
	}
	if g.Token() <= first {
		t.Errorf("token %d after %d", g.Token(), first)
	}
	release(t, g)
}

func TestReleaseWakesWaiterInAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	g := try(t, open1(t, dir), "k")
	p := start(t, "hold", dir, "k")
	p.expect(t, "waiting")
	begin := time.Now()
	release(t, g)
	if token := p.expect(t, "held"); token <= g.Token() {
		t.Errorf("token %d after %d", token, g.Token())
	}
	took := time.Since(begin)
	t.Logf("another process was served after %v", took)
	if took > idle/2 {
		t.Error("it was not woken")
	}
	if _, err := p.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	p.expect(t, "released")
}

func TestKilledWaitersNeitherStallNorReorder(t *testing.T) {
	dir := t.TempDir()
	b := open1(t, dir)
	g := try(t, b, "k")
	var ps []*process
	for range 5 {
		p := start(t, "hold", dir, "k")
		p.expect(t, "waiting") // so that the order of arrival is known
		ps = append(ps, p)
	}
	ps[1].kill()
	ps[2].kill()
	info, err := b.Inspect(t.Context(), "k")
	if err != nil || info.Holder == nil || len(info.Waiters) != 3 {
		t.Fatalf("want a holder and 3 waiters: %+v, %v", info, err)
	}
	release(t, g)
	last := g.Token()
	for _, i := range []int{0, 3, 4} {
		token := ps[i].expect(t, "held")
		if token <= last {
			t.Errorf("token %d after %d", token, last)
		}
		last = token
		for _, other := range ps[i+1:] {
			select {
			case line, ok := <-other.out:
				if ok {
					t.Fatalf("overtaken: a later helper said %q", line)
				}
			default:
			}
		}
		if i == 3 { // the holder dies: the same as a release
			ps[i].kill()
			continue
		}
		if _, err := ps[i].in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		ps[i].expect(t, "released")
	}
	release(t, try(t, b, "k"))
	wantNoTickets(t, b, "k")
}

func TestBreakReachesAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "hold", dir, "k")
	token := p.expect(t, "held")
	b := open1(t, dir)
	out := queue(t, t.Context(), b, "k")
	h, err := b.Break(t.Context(), "k", "")
	if err != nil || h == nil || h.Token != token || !strings.HasPrefix(h.Metadata, "helper ") {
		t.Fatalf("removed %+v, %v", h, err)
	}
	g := served(t, out)
	if g.Token() <= token {
		t.Errorf("token %d after %d", g.Token(), token)
	}
	if canWatch {
		p.expect(t, "lost")
	}
	if _, err := p.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if line := <-p.out; !strings.Contains(line, "lock lost") {
		t.Errorf("release of a broken lock: %q", line)
	}
	if err := g.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("the successor was disturbed: %v", err)
	}
	release(t, g)
}

func TestCounterOfManyProcesses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "count")
	var ps []*process
	for range 10 {
		ps = append(ps, start(t, "count", dir, "k", file, "50"))
	}
	for _, p := range ps {
		for line := range p.out {
			t.Error(line)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if count, _, _ := strings.Cut(string(content), " "); count != "500" {
		t.Fatalf("counted %s, want 500", count)
	}
	wantNoTickets(t, open1(t, dir), "k")
}

// Processes die at random moments of the protocol, and nothing stalls.
func TestKillsAtAnyPoint(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "count")
	b := open1(t, dir)
	for i := range 10 {
		p := start(t, "count", dir, "k", file, "1000000")
		eventually(t, "the helper takes the lock", func() bool {
			_, err := os.Stat(file)
			return err == nil
		})
		out := make(chan outcome, 1)
		go func() {
			g, err := b.Acquire(t.Context(), request("k"))
			out <- outcome{g, err}
		}()
		time.Sleep(time.Duration(i*137) * time.Microsecond) // a sweep, not a wait
		p.kill()
		release(t, served(t, out))
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	release(t, try(t, b, "k"))
	wantNoTickets(t, b, "k")
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	b := open1(t, dir)
	for _, limit := range []string{"0", "10", "21", "50"} { // the counter has 21 bytes, a ticket more than 50
		p := start(t, "full", dir, "k", limit)
		p.expect(t, "refused")
		wantNoTickets(t, b, "k")
	}
	release(t, try(t, b, "k"))
}
