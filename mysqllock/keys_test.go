package mysqllock

import (
	"errors"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
)

func TestTableNames(t *testing.T) {
	for in, want := range map[string]string{
		"interlock": "`interlock`", "app.locks": "`app`.`locks`", "a-b.c$_1": "`a-b`.`c$_1`",
	} {
		table, err := parseTable(in)
		if err != nil || table.quoted() != want || table.String() != in {
			t.Errorf("%q: got %s, %v", in, table.quoted(), err)
		}
	}
	for _, in := range []string{"", ".", "a.", ".a", "a.b.c", "a`b", "a b", "a;b", "ü", strings.Repeat("x", 65)} {
		if _, err := parseTable(in); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%q: want ErrInvalid, got %v", in, err)
		}
		if s, err := Schema(in); err == nil {
			t.Errorf("Schema(%q): want an error, got %s", in, s)
		}
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"mysql://u:s3cret@h/db":                  "",
		"mariadb://u:s3cret@[::1]:3307/db":       "",
		"mysql://h/?table=a.b":                   "",
		"mysql://h/db?tls=true&tls_ca=/nowhere":  "tls_ca",
		"mysql://h/db?tls_ca=x":                  "need tls=true",
		"mysql://h/db?tls=true&tls_cert=x":       "need each other",
		"mysql://u:s3cret@h1,h2/db":              "one host",
		"mysql://u:s3cret@h":                     "database",
		"mysql://u:s3cret@h/db?prefix=a:b":       "prefix",
		"mysql://u:s3cret@h/db?timeout=1ms":      "timeout",
		"mysql://u:s3cret@h/db?table=%60":        "table",
		"mysql://u:s3cret@h/db?pool_size=0":      "pool_size",
		"mysql://u:s3cret@h/db?notify=on":        "notify",
		"mysql://u:s3cret@h/db?notify_conns=0":   "notify_conns",
		"mysql://u:s3cret@h/db?retention=1s":     "retention",
		"mysql://u:s3cret@h/db?passwort=s3cret2": "passwort",
	} {
		u, err := backend.ParseURL(in)
		if err != nil {
			t.Fatal(err)
		}
		_, err = parse(u)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: want an error with %q, got %v", in, want, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows a secret: %v", in, err)
		}
	}
}

// TestValuesAreHexLiterals: no byte of a name or of metadata is text of a statement.
func TestValuesAreHexLiterals(t *testing.T) {
	s := &service{schema: newSchema(table{name: "t"}), opt: defaults()}
	evil := "'; DROP TABLE x; --`\\\x00"
	for _, op := range operations {
		q := s.call(op, lit(s.key(evil)), lit(evil))
		if strings.Contains(q, "DROP") || strings.ContainsAny(q, "\\\x00") || !strings.Contains(q, lit("lock:"+evil)) {
			t.Errorf("a value is text in %s", q)
		}
	}
}

// TestVersion: the procedures of other tables, and of another text, have other names.
func TestVersion(t *testing.T) {
	one, two, same := newSchema(table{name: "a"}), newSchema(table{name: "b"}), newSchema(table{"app", "a"})
	if one.version == two.version || one.version != same.version || len(one.version) != 12 {
		t.Errorf("versions: %s %s %s", one.version, two.version, same.version)
	}
	for _, q := range append(same.tables(), same.procedures()...) {
		if strings.Contains(q, "`interlock") && !strings.Contains(q, "`app`.`interlock_") || !strings.Contains(q, "`app`.`") {
			t.Errorf("a name is not replaced in %.200s", q)
		}
	}
}
