package mysqllock

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix stands before every name unless another is asked for.
const DefaultPrefix = "lock"

// Key is the primary key of the row of a lock's name.
func Key(prefix, name string) string { return prefix + ":" + name }

func (b *Backend) key(name string) string { return Key(b.opt.prefix, name) }

// checkPrefix keeps pairs of prefix and name from meeting in one key.
func checkPrefix(prefix string) error {
	const accepted = "at most 200 bytes without ':', white space and control characters"
	if len(prefix) > maxPrefix || strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r == 0x7f || r == ':' }) {
		return backend.Invalid("prefix", prefix, accepted)
	}
	return nil
}

// table is the name of the table, perhaps with that of its database.
type table struct{ database, name string }

// parseTable accepts names that need no thought anywhere: in SQL, on the disk of
// any system, in grants.
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

// quoted is the name as it stands in statements.
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

// lit is a byte string as a literal. In this form no byte has a meaning, whatever
// the mode and the character set of the connection.
func lit(s string) string { return "X'" + hex.EncodeToString([]byte(s)) + "'" }

// Metadata stands in the queue between separators.
var (
	escaper   = strings.NewReplacer("%", "%25", ";", "%3B")
	unescaper = strings.NewReplacer("%25", "%", "%3B", ";")
)

// Places within an entry of the queue, ";owner,ttl,joined,metadata", counted from 1.
const (
	ownerLen     = 32
	ttlDigits    = 10
	joinedDigits = 16
	entryOwner   = 2
	entryTTL     = entryOwner + ownerLen + 1
	entryJoined  = entryTTL + ttlDigits + 1
	entryMeta    = entryJoined + joinedDigits + 1
)

// entry is an attempt's place in the queue, before and after the time at which it
// joined, which the server knows.
func entry(req backend.Request) (head, rest string) {
	return fmt.Sprintf(";%s,%0*d,", req.Owner, ttlDigits, millis(req.TTL)), "," + escaper.Replace(req.Metadata)
}

// parties reads a queue at the server's time now.
func parties(queue string, now int64) []backend.Party {
	var out []backend.Party
	for e := range strings.SplitSeq(strings.TrimPrefix(queue, ";"), ";") {
		if len(e) < entryMeta-2 {
			continue
		}
		p := backend.Party{Owner: e[:ownerLen], Metadata: unescaper.Replace(e[entryMeta-2:])}
		if joined, err := strconv.ParseInt(e[entryJoined-2:entryMeta-3], 10, 64); err == nil {
			p.Age = since(joined, now)
		}
		out = append(out, p)
	}
	return out
}

// since is how long ago the server's clock showed then.
func since(then, now int64) time.Duration {
	return time.Duration(max(0, now-then)) * time.Microsecond
}

// checkOwner keeps owners of fixed length, on which the queue relies.
func checkOwner(owner string) error {
	if len(owner) != ownerLen || strings.Trim(owner, "0123456789abcdef") != "" {
		return backend.Invalid("owner", owner, "32 lower-case hex digits")
	}
	return nil
}
