//go:build unix

package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/interlock-go/lock/internal/cmdtest"
)

// Each lockctl command in the documentation has existing flags and valid arguments. The
// commands are not run.
func TestCommandsInTheDocumentation(t *testing.T) {
	t.Parallel()
	cmdtest.Documented(t, "../..", "lockctl", 15, program().Check)
}

// The first command of the README prints a token.
func TestReadmeCommand(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Skip("the module stands alone, without the documentation")
	}
	m := regexp.MustCompile(`(?m)^    go run \./cmd/lockctl (.*?) +#`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("the README shows no command")
	}
	code, out, stderr := cmdtest.Exec(t, []string{"XDG_STATE_HOME=" + t.TempDir(), "LOCK_URL="}, cmdtest.Words(m[1])...)
	if code != 0 || !regexp.MustCompile(`^token \d+\n$`).MatchString(out) {
		t.Errorf("%s: exit code %d, stdout %q, stderr %q", m[1], code, out, stderr)
	}
}
