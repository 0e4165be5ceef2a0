package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// envURL names the variable that stands in for --url.
const envURL = "LOCK_URL"

// chooseURL returns the URL to open: that of the flag, else that of the
// environment, else a folder of the user, which it creates.
func chooseURL(flag string, getenv func(string) string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if env := getenv(envURL); env != "" {
		return env, nil
	}
	dir, err := stateFolder(getenv)
	if err != nil {
		return "", err
	}
	// 0700: who may write here may break the user's locks
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", &failure{codeUnavailable, fmt.Errorf("the default folder for locks cannot be made: %w; choose another with --url file:///path or %s", err, envURL)}
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String(), nil
}

// stateFolder is where the XDG base directory specification keeps state. It says
// that a relative path is to be ignored.
func stateFolder(getenv func(string) string) (string, error) {
	state := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home := getenv("HOME")
		if home == "" {
			home, _ = os.UserHomeDir() // where HOME is called otherwise
		}
		if !filepath.IsAbs(home) {
			return "", usagef("no place for locks: --url, %s and HOME are not set; want for example --url file:///var/lib/locks or --url redis://localhost:6379/0", envURL)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "interlock"), nil
}

// effectiveTTL is the TTL that a lease will have: that of the flag, else of the
// URL, else the library's.
func effectiveTTL(flag time.Duration, rawURL string) (time.Duration, error) {
	if flag != 0 {
		return flag, nil
	}
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return 0, err
	}
	return u.Params.Duration("ttl", lock.DefaultTTL), nil
}

// display is a URL as it may be shown: without user and parameters, which may be secret.
func display(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "(malformed URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Opaque: u.Opaque, Host: u.Host, Path: u.Path}).String()
}

// secrets finds what stands before the @ of a URL in a text.
var secrets = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*:(?:/|%2[fF]){2})[^\s"']*@`)

// redact removes users and passwords of URLs from a text, wherever it comes from:
// an URL given in the place of a name or a command is repeated by the message
// that refuses it.
func redact(s string) string { return secrets.ReplaceAllString(s, "${1}***@") }

// redacted is an error whose text is safe to show.
type redacted struct{ error }

func (r redacted) Error() string { return redact(r.error.Error()) }
func (r redacted) Unwrap() error { return r.error }
