package mysqllock

import (
	"encoding/hex"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix is the prefix of keys without WithPrefix.
const DefaultPrefix = "lock"

// Key returns the primary key of the row of the lock name.
func Key(prefix, name string) string { return prefix + ":" + name }

func (s *service) key(name string) string { return Key(s.opt.prefix, name) }

// checkPrefix refuses a colon, so that no two pairs of prefix and name have one key.
func checkPrefix(prefix string) error {
	const accepted = "at most 200 bytes without ':', white space and control characters"
	refused := func(r rune) bool { return r <= ' ' || r == 0x7f || r == ':' }
	if len(prefix) > maxPrefix || strings.ContainsFunc(prefix, refused) {
		return backend.Invalid("prefix", prefix, accepted)
	}
	return nil
}

const maxTable = 64 - len("_places")

// table is the name of the table. database is empty if the table is in the default one.
type table struct{ database, name string }

// parseTable accepts names that are safe in SQL, in grants and as file names.
func parseTable(s string) (table, error) {
	const accepted = "table or database.table, of letters, digits, '_', '$' and '-', " +
		"57 for a table and 64 for a database at most"
	var t table
	database, name, two := strings.Cut(s, ".")
	if two {
		t.database = database
	} else {
		name = s
	}
	t.name = name
	for _, part := range []string{database, name} {
		if part == "" || len(part) > 64 || len(name) > maxTable || strings.ContainsFunc(part, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '$' && r != '-'
		}) {
			return t, backend.Invalid("table", s, accepted)
		}
	}
	return t, nil
}

// quoted returns the name as an identifier in SQL.
func (t table) quoted() string {
	if t.database != "" {
		return "`" + t.database + "`.`" + t.name + "`"
	}
	return "`" + t.name + "`"
}

// with returns the name of a table beside it.
func (t table) with(suffix string) table { return table{t.database, t.name + suffix} }

func (t table) String() string {
	if t.database != "" {
		return t.database + "." + t.name
	}
	return t.name
}

// lit returns s as a hex literal, which needs no escaping in any SQL mode and character set.
func lit(s string) string { return "X'" + hex.EncodeToString([]byte(s)) + "'" }

const ownerLen = 32

// checkOwner verifies the form of owner ids, of which the places of tombstones are made.
func checkOwner(owner string) error {
	if len(owner) != ownerLen || strings.Trim(owner, "0123456789abcdef") != "" {
		return backend.Invalid("owner", owner, "32 lower-case hex digits")
	}
	return nil
}
