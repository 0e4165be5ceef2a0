package workload

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// Variable is the environment variable with the Config of a process that runs as a client.
const Variable = "INTERLOCK_FAULTS_CLIENT"

// Main returns at once, unless the process was started as a client: then it does
// what its Config says until it reads "stop", and exits. On standard output it
// writes "ready", then each operation, and "write" for a write to the resource, which
// is in the test's process; standard input brings the answers, and the words "calm"
// and "stop".
func Main() {
	text := os.Getenv(Variable)
	if text == "" {
		return
	}
	if err := serve(text); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(text string) error {
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c, err := lock.Open(ctx, cfg.URL, Options(cfg.TTL)...)
	for begun := time.Now(); err != nil && time.Since(begun) < 10*time.Second; { // the machine may be busy
		time.Sleep(50 * time.Millisecond)
		c, err = lock.Open(ctx, cfg.URL, Options(cfg.TTL)...)
	}
	if err != nil {
		return err
	}
	defer c.Close(ctx) // the parent looks for what is left
	p := &pipe{answers: map[int]chan bool{}}
	w := New(cfg, c, p, func(op Op) {
		line, err := json.Marshal(op)
		if err == nil {
			p.say("op " + string(line))
		}
	})
	if cfg.HangAfter != "" {
		w.After = func(what string) {
			if what == cfg.HangAfter {
				p.say("hangs")
				select {}
			}
		}
	}
	p.say("ready")
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			var id int
			var ok bool
			switch line := in.Text(); line {
			case "calm":
				w.Calm()
			case "stop":
				stop()
			default:
				if _, err := fmt.Sscan(line, &id, &ok); err == nil {
					p.answer(id, ok)
				}
			}
		}
		os.Exit(1) // the parent has gone
	}()
	w.Run(ctx)
	return nil
}

// pipe is the connection to the parent process.
type pipe struct {
	mu      sync.Mutex
	next    int
	answers map[int]chan bool
}

func (p *pipe) say(line string) {
	// One call of write for each line: it is in the pipe even if this process dies afterwards.
	_, _ = os.Stdout.WriteString(strings.ReplaceAll(line, "\n", " ") + "\n")
}

// Write implements Resource.
func (p *pipe) Write(key int, token uint64) bool {
	answer := make(chan bool, 1)
	p.mu.Lock()
	p.next++
	id := p.next
	p.answers[id] = answer
	p.mu.Unlock()
	p.say(fmt.Sprintf("write %d %d %d", id, key, token))
	return <-answer
}

func (p *pipe) answer(id int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.answers[id]; a != nil {
		a <- ok
		delete(p.answers, id)
	}
}
