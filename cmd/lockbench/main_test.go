//go:build unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/internal/cmdtest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(redisLogger{})
	os.Exit(cmdtest.Main(m, "."))
}

// Each lockbench command in the documentation has existing flags and valid arguments.
func TestCommandsInTheDocumentation(t *testing.T) {
	t.Parallel()
	cmdtest.Documented(t, "../..", "lockbench", 5, program().Check)
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range program().AllCommands() {
		if !strings.Contains(c.Example, "lockbench "+c.Name()) || strings.Contains(c.Long+c.Example, "lockctl") {
			t.Errorf("%s: %s\n%s", c.Name(), c.Long, c.Example)
		}
		for line := range strings.SplitSeq(c.Long+"\n"+c.Example, "\n") {
			if len(line) > 110 && c.Name() != "completion" {
				t.Errorf("%s: a line of %d characters: %q", c.Name(), len(line), line)
			}
		}
	}
}

// A shell completes each scenario of a list.
func TestScenarioCompletion(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"un": "uncontended\n", "many,wai": "many,waiters\n"} {
		if code, out, stderr := cmdtest.Exec(t, nil, "__complete", "bench", "--scenario", word); code != 0 || out != want || stderr != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", word, code, out, stderr)
		}
	}
}
