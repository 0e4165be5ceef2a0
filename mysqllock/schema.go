package mysqllock

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

const (
	schemaVersion = 5
	comment       = "interlock lock table, schema "
	maxPrefix     = 200
	maxKey        = maxPrefix + 1 + backend.MaxName // the length of the column name
)

// mode is the sql_mode with which procedures are created, and so executed.
const mode = "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"

// The statements have the names of the default table. A procedure calls only those before it.
//
//go:embed sql/*.sql
var files embed.FS

var operations = []string{"event", "wake", "lock", "remove", "next", "take", "drop", "inform", "rule", "alone",
	"plain", "one", "many", "renew", "listen"}

func text(name string) string {
	b, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// schema are the statements of a table.
type schema struct {
	table   table
	version string // of the procedures: the end of their names
	names   *strings.Replacer
}

func newSchema(t table) *schema {
	sum := sha256.New()
	fmt.Fprintln(sum, t.name)
	for _, op := range operations {
		fmt.Fprintln(sum, text(op))
	}
	s := &schema{table: t, version: fmt.Sprintf("%x", sum.Sum(nil)[:6])}
	names := []string{
		"`interlock`", t.quoted(),
		"`interlock_places`", t.with("_places").quoted(), "`interlock_events`", t.with("_events").quoted(),
	}
	for _, op := range operations {
		names = append(names, "`interlock_"+op+"`", s.procedure(op))
	}
	s.names = strings.NewReplacer(names...)
	return s
}

// procedure returns the quoted name of the procedure for an operation.
func (s *schema) procedure(op string) string {
	return table{s.table.database, "interlock_" + op + "_" + s.version}.quoted()
}

// sql replaces the names in a statement.
func (s *schema) sql(statement string) string { return s.names.Replace(statement) }

func (s *schema) tables() []string {
	return strings.Split(strings.TrimSuffix(s.sql(text("tables")), ";\n//\n"), ";\n//\n")
}

func (s *schema) procedures() (all []string) {
	for _, op := range operations {
		all = append(all, strings.TrimSuffix(s.sql(text(op)), "\n"))
	}
	return all
}

// Schema returns the statements that create the tables and the procedures, for a migration by the command line client
// of the server: they need its command DELIMITER. The names of the procedures have a hash of their text, so those of
// two versions of this package can be there side by side.
func Schema(name string) (string, error) {
	t, err := parseTable(name)
	if err != nil {
		return "", err
	}
	s := newSchema(t)
	var b strings.Builder
	for _, q := range s.tables() {
		b.WriteString(q + ";\n")
	}
	b.WriteString("SET @interlock_mode = @@sql_mode, SESSION sql_mode = " + mode + ";\nDELIMITER //\n")
	for _, q := range s.procedures() {
		b.WriteString(q + "//\n")
	}
	b.WriteString("DELIMITER ;\nSET SESSION sql_mode = @interlock_mode")
	return b.String(), nil
}
