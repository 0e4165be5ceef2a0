package app

import (
	"os"
	"strings"
	"testing"

	_ "github.com/interlock-go/lock/filelock"
	_ "github.com/interlock-go/lock/memlock"
)

// The test binary is the program, too: it starts itself as the processes.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		Main()
		return
	}
	// with -race each process would sleep for a second at its end
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

func TestExperiments(t *testing.T) {
	t.Parallel()
	for where, url := range map[string]string{"file": "", "memory": "mem://counter"} {
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
		"-processes 0":           "-processes 0: want at least 1",
		"-each 0":                "-each 0: want at least 1",
		"-pause -1s":             "-pause -1s: want 0 or more",
		"-lockstep":              "want -no-lock",
		"more":                   `unexpected argument "more"`,
		"-url mem://a -config b": "-config and -url",
		"-config /nowhere":       "-config /nowhere: open",
		"-config app.go":         "-config app.go: invalid character",
	} {
		_, err := run(t.Context(), strings.Fields(args), &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
