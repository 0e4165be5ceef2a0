package mysqllock

import (
	"encoding/hex"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix is the prefix of keys without WithPrefix.
const DefaultPrefix = "lock"

// Key returns the primary key of the row of the lock name.
func Key(prefix, name string) string { return prefix + ":" + name }

func (b *Backend) key(name string) string { return Key(b.opt.prefix, name) }

// checkPrefix refuses a colon, so that no two pairs of prefix and name have one key.
func checkPrefix(prefix string) error {
	const accepted = "at most 200 bytes without ':', white space and control characters"
	if len(prefix) > maxPrefix || strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r == 0x7f || r == ':' }) {
		return backend.Invalid("prefix", prefix, accepted)
	}
	return nil
}

// table is the name of the table. database is empty if the table is in the default one.
type table struct{ database, name string }

// parseTable accepts names that are safe in SQL, in grants and as file names.
func parseTable(s string) (table, error) {
	const accepted = "table or database.table, each 1 to 64 of letters, digits, '_', '$' and '-'"
	var t table
	database, name, two := strings.Cut(s, ".")
	if two {
		t.database = database
	} else {
		name = s
	}
	t.name = name
	for _, part := range []string{database, name} {
		if part == "" || len(part) > 64 || strings.ContainsFunc(part, func(r rune) bool {
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

func (t table) String() string {
	if t.database != "" {
		return t.database + "." + t.name
	}
	return t.name
}

// lit returns s as a hex literal, which needs no escaping in any SQL mode and character set.
func lit(s string) string { return "X'" + hex.EncodeToString([]byte(s)) + "'" }

// Metadata is escaped because entries of the queue begin with a semicolon.
var (
	escaper   = strings.NewReplacer("%", "%25", ";", "%3B")
	unescaper = strings.NewReplacer("%25", "%", "%3B", ";")
)

// Offsets in an entry of the queue, ";owner,ttl,joined,metadata", from 1.
const (
	ownerLen     = 32
	ttlDigits    = 10
	joinedDigits = 16
	entryOwner   = 2
	entryTTL     = entryOwner + ownerLen + 1
	entryJoined  = entryTTL + ttlDigits + 1
	entryMeta    = entryJoined + joinedDigits + 1
)

// entry returns the entry of a request in the queue, before and after the time of joining,
// which the server inserts.
func entry(req backend.Request) (head, rest string) {
	return fmt.Sprintf(";%s,%0*d,", req.Owner, ttlDigits, millis(req.TTL)), "," + escaper.Replace(req.Metadata)
}

// contenders returns the waiters in a queue at the server's time now.
func contenders(queue string, now int64) []backend.Contender {
	var out []backend.Contender
	for e := range strings.SplitSeq(strings.TrimPrefix(queue, ";"), ";") {
		if len(e) < entryMeta-2 {
			continue
		}
		c := backend.Contender{Owner: e[:ownerLen], Metadata: unescaper.Replace(e[entryMeta-2:])}
		if joined, err := strconv.ParseInt(e[entryJoined-2:entryMeta-3], 10, 64); err == nil {
			c.Age = since(joined, now)
		}
		out = append(out, c)
	}
	return out
}

// queueOwners returns the places and owner ids of the entries of a queue, whose end may be
// cut off.
func queueOwners(queue string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		place := 1
		for e := range strings.SplitSeq(strings.TrimPrefix(queue, ";"), ";") {
			if len(e) >= ownerLen && !yield(place, e[:ownerLen]) {
				return
			}
			place += len(e) + 1
		}
	}
}

// since returns the time from then to now, both in microseconds of the server's clock.
func since(then, now int64) time.Duration {
	return time.Duration(max(0, now-then)) * time.Microsecond
}

// checkOwner verifies the form of owner ids. The queue relies on their fixed length.
func checkOwner(owner string) error {
	if len(owner) != ownerLen || strings.Trim(owner, "0123456789abcdef") != "" {
		return backend.Invalid("owner", owner, "32 lower-case hex digits")
	}
	return nil
}
