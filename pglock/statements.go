package pglock

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// DefaultTable is the name of the lock table unless the caller sets another.
const DefaultTable = "interlock"

const (
	tombstoneTTL  = 5 * time.Minute // also in rule.sql; data of a dead connection arrives earlier
	channelPrefix = "interlock_"    // of the channel of a process; also in rule.sql
	schemaVersion = "interlock lock table, schema 5"
)

// The files are what a server can run. newStatements replaces the names of the tables and functions in them.
//
//go:embed sql/*.sql
var sqlFiles embed.FS

// statements are the statements for one table.
type statements struct {
	table, places string // quoted
	version       string // of the functions: the hash of their text
	rule          string // the name of a function, quoted, with its schema
	parts         pgx.Identifier
	schema        string // creates the tables
	functions     string // creates the functions

	acquire, acquireMany, renew, renewMany, end, endMany, breaks, downgrade, rest, pass string
	probe, columns, inspect, holds, guard, used, turn, sweep                            string
	unusedVersions, forgetVersion                                                       string
}

func newStatements(table string) (statements, error) {
	parts, err := parseTable(table)
	if err != nil {
		return statements{}, err
	}
	s := statements{parts: parts, table: parts.Sanitize(), places: beside(parts, "_places")}
	sum := sha256.Sum256([]byte(s.loadFunctions()))
	s.version = hex.EncodeToString(sum[:6])
	s.functions = s.loadFunctions()
	s.schema = s.load("tables") + fmt.Sprintf("COMMENT ON TABLE %s IS '%s';\n", s.table, schemaVersion)
	s.rule = s.expand("interlock_rule")
	for to, text := range map[*string]string{
		&s.acquire:        "SELECT 1::bigint, a.* FROM interlock_acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, true) a",
		&s.renew:          "SELECT 1::bigint, a.* FROM interlock_renew($1, $2::text[], $3, $4::bigint[], $5::boolean[], true) a",
		&s.end:            "SELECT 1::bigint, a.* FROM interlock_end($1, $2, $3, $4, $5, $6, true) a",
		&s.endMany:        "SELECT row_number() OVER (), a.* FROM interlock_end_many($1::text[], $2::bytea[], $3::text[], $4, $5::boolean[], $6::text[]) a",
		&s.breaks:         "SELECT 1::bigint, a.* FROM interlock_rule('break', $1, $2, '', '', 0, 0, 0, false, '', '', true) a",
		&s.pass:           "SELECT 1::bigint, a.* FROM interlock_rule('pass', $1, '', '', '', 0, 0, 0, $2, '', '', true) a",
		&s.rest:           "SELECT 1::bigint, a.* FROM interlock_rule('pass', $1, '', '', '', 0, 0, 0, false, '', $2, true) a",
		&s.downgrade:      "SELECT 1::bigint, a.* FROM interlock_rule('downgrade', $1, $2, $3, '', 0, 0, 0, false, '', '', true) a",
		&s.unusedVersions: "SELECT encode(substr(name, 2), 'escape') FROM interlock WHERE name > decode('00', 'hex') AND name < decode('01', 'hex') AND since < (extract(epoch FROM now()) * 1000000)::bigint - $1::bigint\n\tAND name <> decode('00', 'hex') || $2::text::bytea",
		&s.forgetVersion:  "DELETE FROM interlock WHERE name = decode('00', 'hex') || $1::text::bytea",
		&s.columns:        "SELECT t.*, p.* FROM interlock t, interlock_places p WHERE false",
	} {
		*to = s.expand(text)
	}
	s.probe, s.inspect, s.holds, s.guard = s.load("probe"), s.load("inspect"), s.load("holds"), s.load("guard")
	s.acquireMany, s.renewMany = s.load("acquire_many"), s.load("renew_many")
	s.used, s.turn, s.sweep = s.load("used"), s.load("turn"), s.load("sweep")
	return s, nil
}

func (s statements) loadFunctions() string {
	return s.load("types") + s.load("rule") + s.load("acquire") + s.load("renew") + s.load("end") + s.load("end_many")
}

// drop returns the statement that drops the functions of another version.
func (s statements) drop(version string) string {
	s.version = version
	return s.load("drop")
}

func (s statements) load(file string) string {
	text, err := sqlFiles.ReadFile("sql/" + file + ".sql")
	if err != nil {
		panic(err) // not embedded
	}
	return s.expand(string(text))
}

// name is a name in the files: of a table, an index, a type or a function.
var name = regexp.MustCompile(`\binterlock(_[a-z]+)*\b`)

// expand replaces the names in a text. Those of functions end with the version, if it is known.
func (s statements) expand(text string) string {
	return name.ReplaceAllStringFunc(text, func(word string) string {
		of := strings.TrimPrefix(word, "interlock")
		switch {
		case of == "":
			return s.table
		case of == "_places":
			return s.places
		case strings.HasPrefix(of, "_places_"): // an index, which is in the schema of its table
			return pgx.Identifier{s.parts[len(s.parts)-1] + of}.Sanitize()
		}
		function := append(pgx.Identifier{}, s.parts...)
		function[len(function)-1] = word + "_" + s.version
		return function.Sanitize()
	})
}

// beside returns the quoted name of a table with a suffix.
func beside(table pgx.Identifier, suffix string) string {
	other := append(pgx.Identifier{}, table...)
	other[len(other)-1] += suffix
	return other.Sanitize()
}

// Schema returns the statements that create the tables and the functions of this version, for an application that does so
// by a migration of its own. They change nothing that exists. The error is ErrInvalid for a bad name.
func Schema(table string) (string, error) {
	s, err := newStatements(table)
	return s.schema + s.functions, err
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// maxTable leaves room for the names of indexes. The server cuts names at 63 bytes.
const maxTable = 63 - len("_places_unclaimed")

// parseTable returns the parts of the name of a table. They are quoted, so that they are case-sensitive.
func parseTable(table string) (pgx.Identifier, error) {
	parts := strings.Split(table, ".")
	for i, p := range parts {
		if limit := map[bool]int{true: maxTable, false: 63}[i == len(parts)-1]; len(parts) > 2 || !identifier.MatchString(p) || len(p) > limit {
			return nil, backend.Invalid("table", table, fmt.Sprintf("table or schema.table, each of letters, digits and underscores, not beginning with a digit, at most %d in the table and 63 in the schema", maxTable))
		}
	}
	return parts, nil
}
