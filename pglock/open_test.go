package pglock

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

func parseURL(t *testing.T, s string) (string, options, error) {
	t.Helper()
	u, err := backend.ParseURL(s)
	if err != nil {
		t.Fatal(err)
	}
	cfg, o, err := parse(u)
	if err != nil {
		return "", o, err
	}
	c := cfg.ConnConfig
	return strings.Join([]string{c.User, c.Password, c.Host, c.Database}, " "), o, nil
}

func TestURL(t *testing.T) {
	got, o, err := parseURL(t, "postgres://me:p%40ss@h1:1,h2:2/db?sslmode=disable&table=a.b&prefix=x&timeout=2s&listen=false&listen_always=true&create=false")
	if err != nil || got != "me p@ss h1 db" {
		t.Errorf("got %q, %v", got, err)
	}
	if o.table != "a.b" || o.prefix != "x" || o.timeout != 2*time.Second || o.listen || !o.always || o.create {
		t.Errorf("got %+v", o)
	}
	for url, want := range map[string]string{
		"postgres://u:secret@h/db?sslmode=on":                                    "verify-full",
		"postgres://u:secret@h/db?table=a.b.c":                                   "schema.table",
		"postgres://u:secret@h/db?table=1a":                                      "digit",
		"postgres://u:secret@h/db?prefix=a:b":                                    "prefix",
		"postgres://u:secret@h/a/b":                                              "database",
		"postgres://u:secret@h:99999/db":                                         "port",
		"postgres://u:secret@h/db?sslmode=verify-full&sslrootcert=/nosuch/secre": "/nosuch/secre",
	} {
		_, _, err := parseURL(t, url)
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: want ErrInvalid that says %q and no password, got %v", url, want, err)
		}
	}
}

func TestStatementsAreComplete(t *testing.T) {
	s, err := newStatements("My.Table")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := Schema("My.Table")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{s.acquire, s.renew, s.renewMany, s.end, s.endMany, s.breaks, s.downgrade, s.pass, s.columns, s.inspect, s.holds, s.guard,
		s.used, s.turn, s.sweep, s.unusedVersions, s.forgetVersion, s.drop("0123456789ab"), schema} {
		if !strings.Contains(text, `"My"."`) {
			t.Errorf("without the schema of the table:\n%s", text)
		}
		for _, word := range name.FindAllString(text, -1) {
			if word != "interlock_" && !strings.Contains(text, "'"+word) && !strings.Contains(text, `"`+word) {
				t.Errorf("%s is not expanded:\n%s", word, text)
			}
		}
	}
}

// TestVersionIsOfTheText: functions for another table, or with another text, have other names, of at most 63 bytes.
func TestVersionIsOfTheText(t *testing.T) {
	longest := strings.Repeat("t", maxTable)
	versions := map[string]bool{}
	for _, table := range []string{"interlock", "locks.interlock", longest} {
		s, err := newStatements(table)
		if err != nil {
			t.Fatal(err)
		}
		versions[s.version] = true
		for _, id := range regexp.MustCompile(`"[^"]*"`).FindAllString(s.schema+s.functions, -1) {
			if len(id) > 63+2 {
				t.Errorf("%s has more than 63 bytes", id)
			}
		}
		if !version.MatchString(s.version) || !strings.Contains(s.functions, "interlock_rule_"+s.version) {
			t.Errorf("version %q", s.version)
		}
	}
	if len(versions) != 3 {
		t.Errorf("want a version for each table, got %v", versions)
	}
}

func TestMetadataFitsAnyEncoding(t *testing.T) {
	for _, s := range []string{"", "host 12", "ü%41 日本 %", "%"} {
		e := escape(s)
		if unescape(e) != s || strings.ContainsFunc(e, func(r rune) bool { return r > '~' }) {
			t.Errorf("%q becomes %q and %q", s, e, unescape(e))
		}
	}
}
