package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// workerEnv holds the URL that a worker opens.
const workerEnv = "INTERLOCK_CONFORMANCE_WORKER"

// Self returns a Harness.Worker that runs this very program again as a worker on
// url. The program must call WorkerMain first thing:
//
//	func TestMain(m *testing.M) {
//		conformance.WorkerMain()
//		os.Exit(m.Run())
//	}
func Self(url string) func() *exec.Cmd {
	return func() *exec.Cmd {
		exe, err := os.Executable()
		if err != nil {
			exe = os.Args[0]
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), workerEnv+"="+url)
		return cmd
	}
}

// WorkerMain returns at once, unless the process was started as a worker of the
// suite: then it executes the commands that it reads from standard input, and exits.
func WorkerMain() {
	url := os.Getenv(workerEnv)
	if url == "" {
		return
	}
	ctx := context.Background()
	var c *lock.Client
	var err error
	for end := time.Now().Add(20 * time.Second); ; { // opening at a bad moment is no case of the suite's
		c, err = lock.Open(ctx, url, lock.WithLogger(nil), lock.WithObserver(&lock.Observer{
			Waiting: func(context.Context, lock.Event) { fmt.Println("waits") },
		}))
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Println("error", err)
			os.Exit(1)
		}
		time.Sleep(100 * time.Millisecond) // between two attempts
	}
	fmt.Println("ready")
	(&workerProc{c: c, leases: map[string]*lock.Lease{}}).serve(ctx, os.Stdin)
	_ = c.Close(ctx)
	os.Exit(0)
}

// workerProc is the worker's side of the conversation: a command per line on
// standard input, answers on standard output.
type workerProc struct {
	c      *lock.Client
	mu     sync.Mutex
	leases map[string]*lock.Lease
}

func (w *workerProc) serve(ctx context.Context, in io.Reader) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		f := strings.Fields(lines.Text())
		switch f[0] {
		case "lock": // KEY TTL [WEIGHT CAPACITY], which is 0 for a reader
			ttl, _ := time.ParseDuration(f[2])
			go w.lock(ctx, f[1], w.mutex(f[1], ttl, f[3:]))
		case "visit": // as lock; unlocks at once
			ttl, _ := time.ParseDuration(f[2])
			go w.visit(ctx, w.mutex(f[1], ttl, f[3:]))
		case "unlock": // KEY
			fmt.Println("unlock", outcome(w.lease(f[1]).Unlock(ctx)))
		case "watch": // KEY TTL
			ttl, _ := time.ParseDuration(f[2])
			go w.watch(w.lease(f[1]), ttl)
		case "cycle": // KEY FILE
			go w.cycle(ctx, f[1], f[2])
		}
	}
}

func (w *workerProc) lease(key string) *lock.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases[key]
}

// mutex returns the lock of a key, or the share of it that the fields name.
func (w *workerProc) mutex(key string, ttl time.Duration, share []string) lock.Mutex {
	if len(share) == 0 {
		return w.c.Mutex(key, lock.WithTTL(ttl))
	}
	weight, _ := strconv.Atoi(share[0])
	capacity, _ := strconv.Atoi(share[1])
	return shareOf(w.c, key, lock.Share{Weight: weight, Capacity: capacity}, lock.WithTTL(ttl))
}

func (w *workerProc) lock(ctx context.Context, key string, m lock.Mutex) {
	l, err := m.Lock(ctx)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	w.mu.Lock()
	w.leases[key] = l
	w.mu.Unlock()
	token, _ := l.Token()
	fmt.Println("granted", token)
}

func (w *workerProc) visit(ctx context.Context, m lock.Mutex) {
	l, err := m.Lock(ctx)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("visited", outcome(l.Unlock(ctx)))
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, lock.ErrLost):
		return "lost"
	}
	return err.Error()
}

// watch looks at the lease's context all the time and returns what it found first
// after it had not run for a whole TTL, which is longer than any trust.
func (w *workerProc) watch(l *lock.Lease, ttl time.Duration) {
	last := time.Now() // before the word on which the suite may stop this process
	fmt.Println("watching")
	for {
		now := time.Now()
		err := l.Context().Err() // the first check after now
		if now.Sub(last) > ttl {
			if err != nil {
				fmt.Println("first-check lost")
			} else {
				fmt.Println("first-check held")
			}
			return
		}
		last = now
		time.Sleep(100 * time.Microsecond) // so as not to take a processor
	}
}

// cycle takes the lock again and again, and notes in a file when it is inside.
func (w *workerProc) cycle(ctx context.Context, key, file string) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	m := w.c.Mutex(key, lock.WithTTL(cycleTTL))
	for {
		l, err := m.Lock(ctx)
		if err != nil {
			fmt.Println("error", err)
			return
		}
		token, _ := l.Token()
		fmt.Fprintf(f, "enter %d %d\n", os.Getpid(), token)
		time.Sleep(2 * time.Millisecond) // the work
		word := "leave"
		if l.Err() != nil { // this process stood still; it knew of its loss when it went on
			word = "late"
		}
		fmt.Fprintf(f, "%s %d %d\n", word, os.Getpid(), token)
		if err := l.Unlock(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
			fmt.Println("error", err)
			return
		}
	}
}

// cycleTTL is well above what a busy machine needs, since a loss would end a worker.
const cycleTTL = 4 * time.Second

// process is the suite's side.
type process struct {
	t     *T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	once  sync.Once
}

func (t *T) worker() *process { return t.launch(t.h.Worker()) }

func (t *T) launch(cmd *exec.Cmd) *process {
	p := t.begin(cmd)
	p.expect("ready", time.Minute)
	return p
}

// begin starts a worker, which says "ready" when it has opened the service.
func (t *T) begin(cmd *exec.Cmd) *process {
	p := &process{t: t, cmd: cmd, lines: make(chan string, 100)}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.fatalf("worker: %v", err)
	}
	p.in = in
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.fatalf("worker: %v", err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.fatalf("worker: %v", err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case p.lines <- s.Text():
			default: // no reader: a worker that cycles is judged by its log
			}
		}
		close(p.lines)
	}()
	t.later(func(context.Context) { p.kill() })
	return p
}

func (p *process) say(line string) {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.fatalf("worker: %v", err)
	}
}

// expect returns the rest of the next line that begins with word.
func (p *process) expect(word string, d time.Duration) string {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-p.lines:
			if rest, found := strings.CutPrefix(line, word); found {
				return strings.TrimSpace(rest)
			}
			if !ok || strings.HasPrefix(line, "error") {
				p.t.fatalf("worker: want %q, got %q (ended: %v)", word, line, !ok)
			}
		case <-timer.C:
			p.t.fatalf("worker: want %q within %v, there was nothing", word, d)
		}
	}
}

func (p *process) lock(key string, ttl time.Duration) { p.lockShare(key, ttl, lock.Share{}) }

// lockShare makes the worker lock a share of a key.
func (p *process) lockShare(key string, ttl time.Duration, s lock.Share) {
	p.say("lock " + argumentsOf(key, ttl, s))
	p.expect("granted", p.t.slack())
}

// waitLock makes the worker wait for a key that is held.
func (p *process) waitLock(key string, ttl time.Duration) {
	p.say("lock " + argumentsOf(key, ttl, lock.Share{}))
	p.expect("waits", p.t.slack())
}

// waitToVisit makes the worker wait for a share of a key that is held, and unlock it at once.
func (p *process) waitToVisit(key string, ttl time.Duration, s lock.Share) {
	p.say("visit " + argumentsOf(key, ttl, s))
	p.expect("waits", p.t.slack())
}

// stillWaits fails if the Lock of the worker has returned, with a grant or an error.
func (p *process) stillWaits(what string) {
	for {
		select {
		case line, ok := <-p.lines:
			if !ok || strings.HasPrefix(line, "granted") || strings.HasPrefix(line, "error") {
				p.t.fatalf("%s: want it to wait, got %q (ended: %v)", what, line, !ok)
			}
		default:
			return
		}
	}
}

// argumentsOf returns the arguments of the commands lock and visit.
func argumentsOf(key string, ttl time.Duration, s lock.Share) string {
	if s.Exclusive() {
		return fmt.Sprintf("%s %v", key, ttl)
	}
	return fmt.Sprintf("%s %v %d %d", key, ttl, s.Weight, s.Capacity)
}

func (p *process) unlock(key string) {
	if got := p.giveBack(key); got != "ok" {
		p.t.errorf("Unlock by the worker: want nil, got %s", got)
	}
}

// giveBack returns the result of an Unlock by the worker: "ok", "lost" or another error.
func (p *process) giveBack(key string) string {
	p.say("unlock " + key)
	return p.expect("unlock", p.t.slack()+5*time.Second)
}

// excludes makes an attempt by another process, which must be refused while the worker holds the lock.
func (p *process) excludes(m lock.Mutex, what string) {
	got, err := m.TryLock(p.t.ctx)
	switch {
	case errors.Is(err, lock.ErrLocked):
	case err != nil:
		p.t.fatalf("%s: want ErrLocked, got %v", what, err)
	case p.giveBack(m.Name()) == "lost": // by a machine that stood still; otherwise it happens again
		p.t.again("%s: want ErrLocked, it was granted %s after the process had lost it", what, leaseText(got))
	default:
		p.t.fatalf("%s: want ErrLocked, it was granted %s", what, leaseText(got))
	}
}

// kill ends the worker with SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
}
