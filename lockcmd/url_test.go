//go:build unix

package lockcmd

import (
	"os"
	"path/filepath"
	"testing"

	_ "github.com/interlock-go/lock/filelock"
)

func TestChooseURL(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	odd := filepath.Join(home, "with space%20#?")
	for _, c := range []struct {
		flag string
		env  map[string]string
		want string
		code int
	}{
		{"mem://a", map[string]string{"LOCK_URL": "mem://b", "HOME": home}, "mem://a", 0},
		{"", map[string]string{"LOCK_URL": "mem://b", "HOME": home}, "mem://b", 0},
		{"", map[string]string{"HOME": home}, "file://" + home + "/.local/state/interlock", 0},
		{"", map[string]string{"HOME": home, "XDG_STATE_HOME": home + "/x"}, "file://" + home + "/x/interlock", 0},
		{"", map[string]string{"HOME": home, "XDG_STATE_HOME": "relative"}, "file://" + home + "/.local/state/interlock", 0},
		{"", map[string]string{"HOME": odd}, "file://" + home + "/with%20space%2520%23%3F/.local/state/interlock", 0},
		{"", map[string]string{"HOME": "/dev/null"}, "", ExitUnavailable},
	} {
		got, err := chooseURL(c.flag, func(k string) string { return c.env[k] })
		if got != c.want || codeOf(err) != c.code {
			t.Errorf("%q %v: %q, %v; want %q", c.flag, c.env, got, err, c.want)
		}
	}
	info, err := os.Stat(filepath.Join(home, "x", "interlock"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, mode %v", err, info.Mode())
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"dial redis://user:pw@host:1: refused":                    "dial redis://***@host:1: refused",
		`unknown command "redis://:p@ss@host/0"`:                  `unknown command "redis://***@host/0"`,
		"want scheme://[user[:password]@]host[:port]":             "want scheme://[user[:password]@]host[:port]",
		"redis+sentinel://a:b@h1,h2/m":                            "redis+sentinel://***@h1,h2/m",
		"file:///var/lib/locks: no such folder":                   "file:///var/lib/locks: no such folder",
		"write to me@example.com about redis://host:6379/0 first": "write to me@example.com about redis://host:6379/0 first",
	} {
		if got := Redact(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
