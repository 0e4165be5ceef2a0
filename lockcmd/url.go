package lockcmd

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// envURL is the environment variable for the URL.
const envURL = "LOCK_URL"

// chooseURL returns the URL of the flag, else of the environment, else of a directory
// of the user, which it creates. A program without the file driver has no default.
func chooseURL(flag string, getenv func(string) string) (string, error) {
	if u := firstOf(flag, getenv(envURL)); u != "" {
		return u, nil
	}
	if !slices.Contains(backend.Schemes(), "file") {
		return "", Usagef("no URL: want --url or %s, with one of the schemes %v", envURL, backend.Schemes())
	}
	dir, err := stateDir(getenv)
	if err != nil {
		return "", err
	}
	// 0700: a user who can write here can break the locks.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", WithCode(ExitUnavailable, fmt.Errorf("cannot create the default directory for locks: %w; choose another with --url file:///path or %s", err, envURL))
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String(), nil
}

// stateDir returns the directory for locks in the state directory of the XDG base
// directory specification, which says that a relative path must be ignored.
func stateDir(getenv func(string) string) (string, error) {
	state := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home := getenv("HOME")
		if home == "" {
			home, _ = os.UserHomeDir() // systems where HOME has another name
		}
		if !filepath.IsAbs(home) {
			return "", Usagef("no directory for locks: --url, %s and HOME are not set; want for example --url file:///var/lib/locks or --url redis://localhost:6379/0", envURL)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "interlock"), nil
}

// effectiveTTL returns the TTL of the flag, else of the URL, else of the library.
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

// DisplayURL returns a URL without user and parameters, which may be secret.
func DisplayURL(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "(malformed URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Opaque: u.Opaque, Host: u.Host, Path: u.Path}).String()
}

// userinfo matches a URL up to its @.
var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*:(?:/|%2[fF]){2})[^\s"']*@`)

// Redact removes users and passwords of URLs from a text. An error message may quote a
// URL that was given in the place of a name or a command.
func Redact(s string) string {
	return userinfo.ReplaceAllStringFunc(s, func(found string) string {
		if found == "scheme://[user[:password]@" { // the form of a URL, in the error for a malformed one
			return found
		}
		return userinfo.ReplaceAllString(found, "${1}***@")
	})
}

// redacted is an error without the users and passwords of URLs in its text.
type redacted struct{ error }

func (r redacted) Error() string { return Redact(r.error.Error()) }
func (r redacted) Unwrap() error { return r.error }

func firstOf(s ...string) string {
	for _, s := range s {
		if s != "" {
			return s
		}
	}
	return ""
}

// inherited returns the URL at which a command is run: that of files lets the command keep the lock if this process
// is killed, unless the URL says otherwise.
func inherited(url string) string {
	u, err := backend.ParseURL(url)
	if err != nil || u.Scheme != "file" || u.Params.String("inherit", "") != "" {
		return url
	}
	if strings.Contains(url, "?") {
		return url + "&inherit=true"
	}
	return url + "?inherit=true"
}
