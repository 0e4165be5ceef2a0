package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "turn" { // as in run
		if err := turn(os.Args[2], os.Args[3:]...); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestTurns: of slow packages as many run as there are processors, and others begin when the processors are idle or one
// ends.
func TestTurns(t *testing.T) {
	var left atomic.Bool // whether the processors are idle
	asked := make(chan struct{}, 1)
	turns, err := newTurns(func() float64 {
		select {
		case asked <- struct{}{}:
		default:
		}
		time.Sleep(time.Millisecond)
		if left.Load() {
			return 1
		}
		return 0
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := turns.close(); err != nil {
			t.Error(err)
		}
	}()
	slowFolder := filepath.Join(t.TempDir(), filepath.FromSlash(slow[0]))
	if err := os.MkdirAll(slowFolder, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(folder string) (begun chan struct{}, end func()) {
		cmd := exec.Command(os.Args[0], "turn", turns.listener.Addr().String(), "/bin/sh", "-c", "echo begun; read end")
		cmd.Dir = folder
		in, errIn := cmd.StdinPipe()
		out, errOut := cmd.StdoutPipe()
		if errIn != nil || errOut != nil {
			t.Fatal(errIn, errOut)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		begun = make(chan struct{})
		go func() {
			if line, _ := bufio.NewReader(out).ReadString('\n'); line != "begun\n" {
				t.Errorf("want the program to print begun, got %q", line)
			}
			close(begun)
		}()
		return begun, func() {
			_, _ = io.WriteString(in, "end\n")
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
	var ends []func()
	for range runtime.NumCPU() {
		begun, end := start(slowFolder)
		<-begun
		ends = append(ends, end)
	}
	wantWaits := func(begun chan struct{}) {
		t.Helper()
		for range 3 { // times that it was looked whether the processors are idle
			<-asked
		}
		select {
		case <-begun:
			t.Error("a program began while as many ran as there are processors, which were busy")
		default:
		}
	}
	begun, end := start(t.TempDir())
	<-begun // its package is not slow
	end()
	begun, end = start(slowFolder)
	wantWaits(begun)
	ends[0]()
	<-begun
	ends[0] = end
	begun, end = start(slowFolder)
	wantWaits(begun)
	left.Store(true)
	<-begun
	for _, end := range append(ends, end) {
		end()
	}
}
