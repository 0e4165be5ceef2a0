package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The test binary is the program, too: it starts itself as the processes.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		main()
		return
	}
	// with -race each process would sleep for a second at its end
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

func TestExperiments(t *testing.T) {
	t.Parallel()
	urls := map[string]string{"file": "", "memory": "mem://counter"}
	if url := startRedis(t); url != "" {
		urls["redis"] = url
	}
	for where, url := range urls {
		for name, c := range map[string]struct {
			args string
			want string
		}{
			// ten processes make ten increments each
			"counting with a lock": {"-each 10", "made 100 increments in .*, the number is 100: 0 lost"},
			// all processes read the same number and write that number plus one
			"counting without one": {"-each 10 -no-lock -lockstep", "made 100 increments in .*, the number is 10: 90 lost"},
			"selling with a lock":  {"-oversell -pause 20ms", "sold 60, the stock says 40\n"},
			"selling without one":  {"-oversell -no-lock -lockstep", "sold 120, the stock says 40\noversold by 20\n"},
		} {
			t.Run(where+"/"+name, func(t *testing.T) {
				// not parallel: the cases share the number on a server
				args := strings.Fields(c.args)
				if url != "" {
					args = append(args, "-url", url+"?ttl=10s")
				}
				var out strings.Builder
				ok, err := run(t.Context(), args, &out)
				if err != nil || !ok {
					t.Fatalf("%v, %v, %s", ok, err, &out)
				}
				before, after, _ := strings.Cut(c.want, ".*")
				if _, rest, found := strings.Cut(out.String(), before); !found || !strings.Contains(rest, after) {
					t.Fatalf("got %q, want %q", &out, c.want)
				}
			})
		}
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-processes 0":                         "-processes 0: want at least 1",
		"-each 0":                              "-each 0: want at least 1",
		"-pause -1s":                           "-pause -1s: want 0 or more",
		"-lockstep":                            "want -no-lock",
		"more":                                 `unexpected argument "more"`,
		"-url mem://a -config b":               "-config and -url",
		"-config /nowhere":                     "-config /nowhere: open",
		"-config go.mod":                       "-config go.mod: yaml",
		"-store redis+cluster://a:s3cret@b/0":  "want a path, or a redis://",
		"-store redis://a:s3cret@b/notanumber": "malformed",
	} {
		_, err := run(t.Context(), strings.Fields(args), &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// startRedis starts a redis-server for the test and returns its URL, or "" if redis-server
// is not installed.
func startRedis(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("LOCK_TEST_REQUIRE") != "" {
			t.Fatal("redis-server is not on the PATH, and LOCK_TEST_REQUIRE is set")
		}
		t.Log("without Redis: redis-server is not on the PATH")
		return ""
	}
	for { // if the port is taken meanwhile, redis-server ends and the next port is tried
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr, port := l.Addr().String(), l.Addr().(*net.TCPAddr).Port
		l.Close()
		cmd := exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		timeout := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer timeout.Stop()
		var output strings.Builder
		for in := bufio.NewScanner(out); in.Scan(); {
			if strings.Contains(in.Text(), "eady to accept connections") { // this server has the port
				go func() { _, _ = io.Copy(io.Discard, out) }()
				return "redis://" + addr + "/0"
			}
			fmt.Fprintln(&output, in.Text())
		}
		if !strings.Contains(output.String(), "Address already in use") {
			t.Fatalf("redis-server ended: %s", &output)
		}
	}
}
