package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/integration/faults/workload"
)

// process is a client in its own process.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ready chan error
	done  chan struct{} // closed when all it said has been read
	gone  chan struct{} // closed when it has ended

	hangs chan struct{} // closed when it hangs, see workload.Config.HangAfter

	mu   sync.Mutex
	open map[int]*openHold // holds whose end the process has not reported
}

// openHold is a lease of a process and the end of its trust, as far as known.
type openHold struct {
	workload.Op
	trusted int64 // math.MaxInt64: not ended
}

// see updates the open leases with an operation that the process reports.
func (p *process) see(op workload.Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch op.Kind {
	case workload.Released, workload.Lost:
		delete(p.open, op.Hold)
		return
	case workload.Acquired, workload.Trusted, workload.Ending:
	default:
		return
	}
	h := p.open[op.Hold]
	if h == nil { // a loss may be reported before its Acquired
		h = &openHold{trusted: math.MaxInt64}
		p.open[op.Hold] = h
	}
	switch op.Kind {
	case workload.Acquired:
		h.Op = op
	case workload.Trusted:
		h.Until = max(h.Until, op.Until)
	case workload.Ending:
		h.trusted = min(h.trusted, op.Call)
	}
}

// Self runs this program again, which must call [workload.Main] first.
func Self() *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	cmd := exec.Command(exe)
	cmd.Env = os.Environ()
	return cmd
}

// startProcess returns when the process has opened its session.
func startProcess(cmd *exec.Cmd, cfg workload.Config, r workload.Resource, record func(workload.Op)) (*process, error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, workload.Variable+"="+string(text))
	cmd.Stderr = os.Stderr
	p := &process{cmd: cmd, ready: make(chan error, 1), done: make(chan struct{}), gone: make(chan struct{}), hangs: make(chan struct{}), open: map[int]*openHold{}}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	go p.read(out, r, record)
	select {
	case err = <-p.ready:
	case <-time.After(20 * time.Second):
		err = fmt.Errorf("process %d is not ready after 20s", cmd.Process.Pid)
	}
	if err != nil {
		p.kill()
	}
	return p, err
}

// start makes the process end with this one, also if it is stopped and does not notice the end
// of its input.
func (p *process) start() error {
	p.cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go func() {
		// The kernel ends it with the thread that started it, so this thread waits for it.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			<-p.done
			_ = p.cmd.Wait()
			close(p.gone)
		}
	}()
	return <-started
}

func (p *process) read(out io.Reader, r workload.Resource, record func(workload.Op)) {
	defer close(p.done)
	in := bufio.NewScanner(out)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		word, rest, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "ready":
			p.ready <- nil
		case "error":
			p.ready <- fmt.Errorf("process %d: %s", p.cmd.Process.Pid, rest)
		case "write":
			var id, key int
			var token uint64
			if _, err := fmt.Sscan(rest, &id, &key, &token); err == nil {
				p.say(fmt.Sprint(id, r.Write(key, token)))
			}
		case "op":
			var op workload.Op
			if err := json.Unmarshal([]byte(rest), &op); err != nil {
				continue // cut off by its death
			}
			p.see(op)
			record(op)
		case "hangs":
			close(p.hangs)
		}
	}
}

func (p *process) say(line string) { _, _ = io.WriteString(p.in, line+"\n") }

// stop makes the process release its locks and returns when it has exited: nil if the process
// exited without an error, including those of the race detector.
func (p *process) stop(within time.Duration) error {
	p.say("stop")
	select {
	case <-p.gone:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("it ended with code %d", code)
		}
		return nil
	case <-time.After(within):
		p.kill()
		return fmt.Errorf("it did not end within %v", within)
	}
}

// kill ends the process with SIGKILL and returns the ends of its open leases. The trust in
// a lease ends with the process, with the lease, or at the time that the process recorded
// before it requested the release, whichever is first.
func (p *process) kill() []workload.Op {
	// Its locks may be free as soon as it is dead.
	at := workload.Monotonic(time.Now())
	_ = p.cmd.Process.Kill()
	<-p.gone
	p.mu.Lock()
	defer p.mu.Unlock()
	var ends []workload.Op
	for _, h := range p.open {
		if h.Kind != workload.Acquired {
			continue // killed before it had recorded the grant
		}
		end := workload.Op{Kind: workload.Lost, Key: h.Key, Worker: h.Worker, Hold: h.Hold, Call: min(at, h.trusted), Until: h.Until, Err: "killed"}
		if h.Until != 0 {
			end.Call = min(end.Call, h.Until)
		}
		ends = append(ends, end)
	}
	p.open = map[int]*openHold{}
	return ends
}
