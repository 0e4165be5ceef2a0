package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	idleFor   = 5 * time.Second // for how long idle looks
	idleShare = 0.5             // of the processors' time, for one package more
)

// turns decides when the tests of a slow package begin. As many of them as there are processors may run at any time, and
// one more if the processors are idle: with more packages each one is slower, and none ends sooner.
// go test runs "runtests turn" in place of a test program, which asks for its turn and becomes the program.
type turns struct {
	listener net.Listener
	folder   string
	idle     func() float64 // the share of the processors' time that is left
	running  []int          // process ids
	served   chan struct{}  // closed when serve has returned
}

func newTurns(idle func() float64) (*turns, error) {
	folder, err := os.MkdirTemp("", "interlock-turns-")
	if err != nil {
		return nil, err
	}
	t := &turns{folder: folder, idle: idle, served: make(chan struct{})}
	if t.listener, err = net.Listen("unix", filepath.Join(folder, "socket")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	go t.serve()
	return t, nil
}

func (t *turns) close() error {
	err := t.listener.Close()
	<-t.served
	return errors.Join(err, os.RemoveAll(t.folder))
}

// flag returns the argument of go test.
func (t *turns) flag() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("-exec='%s' turn '%s'", self, t.listener.Addr()), nil
}

// inTurns runs goTest with turns.
func inTurns(args ...string) error {
	t, err := newTurns(idle)
	if err != nil {
		return err
	}
	exec, err := t.flag()
	if err == nil {
		err = goTest(append([]string{exec}, args...)...)
	}
	return errors.Join(err, t.close())
}

// serve lets the programs begin in the order in which they ask.
func (t *turns) serve() {
	defer close(t.served)
	for {
		conn, err := t.listener.Accept()
		if err != nil {
			return // closed
		}
		line := make([]byte, 20)
		n, _ := conn.Read(line)
		pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
		if err == nil {
			for t.full() {
				if t.idle() >= idleShare && len(t.running) <= runtime.NumCPU() {
					break
				}
			}
			t.running = append(t.running, pid)
			_, _ = fmt.Fprintln(conn, "begin")
		}
		_ = conn.Close()
	}
}

// full reports whether as many programs run as there are processors.
func (t *turns) full() bool {
	t.running = slices.DeleteFunc(t.running, func(pid int) bool {
		p, err := os.FindProcess(pid)
		return err != nil || p.Signal(syscall.Signal(0)) != nil
	})
	return len(t.running) >= runtime.NumCPU()
}

// turn waits for its turn, if the package is slow, and becomes the program.
func turn(socket string, program ...string) error {
	folder, err := os.Getwd() // that of the package
	if err != nil {
		return err
	}
	if slices.ContainsFunc(slow, func(s string) bool { return strings.HasSuffix(filepath.ToSlash(folder), "/"+s) }) {
		if err := await(socket); err != nil {
			return fmt.Errorf("no turn for %s: %w", folder, err)
		}
	}
	return syscall.Exec(program[0], program, os.Environ())
}

func await(socket string) error {
	conn, err := net.Dial("unix", socket) //nolint:gosec // that of the run, see flag
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(conn, os.Getpid())
	_, err = conn.Read(make([]byte, 1))
	return err
}

// idle returns for which share of the next seconds the processors have nothing to do, and 1 where the system does not say.
func idle() float64 {
	before, all := processorTime()
	time.Sleep(idleFor)
	after, allAfter := processorTime()
	if allAfter <= all {
		return 1
	}
	return (after - before) / (allAfter - all)
}

// processorTime reads for how long the processors were idle, and how long that was in all.
func processorTime() (idle, all float64) {
	content, _ := os.ReadFile("/proc/stat")
	line, _, _ := bytes.Cut(content, []byte("\n"))
	for i, field := range strings.Fields(string(line)) {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil || i > 8 { // the name; a guest is counted twice
			continue
		}
		all += n
		if i == 4 || i == 5 { // idle, and idle while a disk is busy
			idle += n
		}
	}
	return idle, all
}
