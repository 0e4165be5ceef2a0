//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
	"github.com/interlock-go/lock/mysqllock"
	"github.com/interlock-go/lock/pglock"
)

// secretive must not be in any output.
const secretive = "hunter2"

func TestSchema(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres:": `CREATE TABLE IF NOT EXISTS "interlock" (`,
		"postgresql://u:" + secretive + "@nosuch.invalid:1/db?table=infra.Locks&sslmode=disable": `CREATE TABLE IF NOT EXISTS "infra"."Locks" (`,
		"mysql:": "CREATE TABLE IF NOT EXISTS `interlock` (",
		"mariadb://u:" + secretive + "@nosuch.invalid/db?table=shop.locks": "CREATE TABLE IF NOT EXISTS `shop`.`locks` (",
	} {
		code, out, stderr := cmdtest.Exec(t, nil, "schema", "--url", url)
		if code != 0 || stderr != "" || !strings.HasPrefix(out, want) || !strings.HasSuffix(out, ";\n") || strings.Contains(out, secretive) {
			t.Errorf("%s: exit code %d, stderr %q, stdout %q", url, code, stderr, out)
		}
	}
	for scheme, f := range map[string]func(string) (string, error){"postgres": pglock.Schema, "mysql": mysqllock.Schema} {
		want, err := f("locks")
		if err != nil {
			t.Fatal(err)
		}
		code, out, _ := cmdtest.Exec(t, []string{"LOCK_URL=" + scheme + "://u:" + secretive + "@db/db?table=locks"}, "schema", "-o", "json")
		var got struct{ Table, SQL string }
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || got.Table != "locks" || !strings.HasPrefix(got.SQL, strings.TrimRight(want, "; \n")) {
			t.Errorf("%s: exit code %d, %v, %q", scheme, code, err, out)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, says string }{
		{"redis://u:" + secretive + "@h:6379/0", `scheme "redis"`},
		{"nonsense://u:" + secretive + "@h/", "postgres://..."},
		{"postgres://u:" + secretive + `@h/db?table=a%22%3BDROP`, "letters, digits and underscores"},
		{"mysql://u:" + secretive + "@h/db?table=a%60b", "invalid table"},
		{"postgres://u:" + secretive + "@h/db?table=a&table=b", "want"},
		{"postgres://u:" + secretive + "/x@h/db", "percent-encoded"},
		{"", "needs the URL of a database"},
	} {
		args := []string{"schema"}
		if c.url != "" {
			args = append(args, "--url", c.url)
		}
		code, out, stderr := cmdtest.Exec(t, nil, args...)
		if code != lockcmd.ExitUsage || out != "" || !strings.Contains(stderr, c.says) || strings.Contains(stderr, secretive) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", c.url, code, out, stderr)
		}
	}
	if code, out, _ := cmdtest.Exec(t, nil, "schema", "--help"); code != 0 || !strings.Contains(out, "lockctl schema --url 'postgres://db/shop?table=infra.locks' | psql shop") {
		t.Errorf("help: %d %q", code, out)
	}
}
