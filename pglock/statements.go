package pglock

import (
	_ "embed"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// DefaultTable is the table unless another is asked for.
const DefaultTable = "interlock"

const (
	claim        = 3 * time.Second // a pushed grant lasts that long at most; also in {claim}
	tombstoneFor = 5 * time.Minute // also in {stone}: longer than a dead connection's data can still arrive
	channel      = "interlock_"    // what a process's channel begins with
	version      = "interlock lock table, schema 1"
)

// The protocol. Each operation is one statement, so one round trip. What several
// of them say stands in braces.
var (
	//go:embed sql/schema.sql
	sqlSchema string
	//go:embed sql/acquire.sql
	sqlAcquire string
	//go:embed sql/release.sql
	sqlRelease string
	//go:embed sql/abandon.sql
	sqlAbandon string
	//go:embed sql/break.sql
	sqlBreak string
	//go:embed sql/renew.sql
	sqlRenew string
	//go:embed sql/renew_many.sql
	sqlRenewMany string
	//go:embed sql/inspect.sql
	sqlInspect string
	//go:embed sql/guard.sql
	sqlGuard string
	//go:embed sql/sweep.sql
	sqlSweep string
	//go:embed sql/probe.sql
	sqlProbe string
)

// fragments of statements. In those of a hand-over, l is the row as it was; next
// is the first in its queue.
var fragments = strings.NewReplacer(
	// stable within a statement, and of before it waited for a row: stale on the safe side only
	"{now}", "statement_timestamp()",
	"{us}", "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint",
	"{channel}", channel,
	"{version}", version,
	"{claim}", "least(substr(next, 51, 13)::bigint, 3000) * interval '1 millisecond'",
	"{hand over}", `(token, owner, process, metadata, granted, expires, queue) = (
		SELECT CASE WHEN next IS NULL THEN l.token ELSE greatest(l.token + 1, {us}) END,
			left(next, 32), substr(next, 34, 16), substr(next, 65), {now},
			CASE WHEN next IS NOT NULL THEN {now} + {claim} END, l.queue[2:]
		FROM (SELECT l.queue[1] AS next) s)`,
	"{stone}", "$2 || ' ' || ({us} + 300000000)",
	"{swept}", "CASE WHEN l.gone = '{}' THEN l.gone ELSE ARRAY(SELECT g FROM unnest(l.gone) g WHERE substr(g, 34)::bigint > {us}) END",
	"{gone}", "CASE WHEN $3 THEN {swept} || ARRAY[{stone}] ELSE l.gone END",
	// owner, token, expiry, how long that is, name
	"{tell grant}", `pg_notify('{channel}' || did.process, 'g ' || did.owner || ' ' || did.token || ' ' || {micros did.expires} || ' ' || {micros did.expires - {now}} || ' ' || encode($1, 'hex'))`,
	// the first in the queue, the server's clock, how long the lease lasts
	"{tell head}", `pg_notify('{channel}' || substr(head, 34, 16), 'h ' || left(head, 32) || ' ' || {us} || ' ' || {micros did.expires - {now}})`,
)

var (
	micros = regexp.MustCompile(`\{micros ([^{}]*)\}`)
	// A grant must survive a crash. What gives nobody anything need not, and saves a disk write.
	commit = regexp.MustCompile(`\{commit ([^{}]*)\}`)
)

func statement(text, table string) string {
	text = strings.ReplaceAll(text, "{table}", table)
	for old := ""; old != text; {
		old = text
		text = fragments.Replace(text)
		text = micros.ReplaceAllString(text, "(extract(epoch FROM $1) * 1000000)::bigint")
		text = commit.ReplaceAllString(text, `set_config('synchronous_commit', CASE WHEN $1 THEN 'off'
		WHEN current_setting('synchronous_commit') = 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)`)
	}
	return text
}

// statements for one table.
type statements struct {
	table                                                                            string // quoted
	acquire, release, abandon, breakLock, renew, renewMany, inspect, guard, sweepOld string
}

func newStatements(table string) (statements, error) {
	q, err := quote(table)
	if err != nil {
		return statements{}, err
	}
	return statements{
		table: q, acquire: statement(sqlAcquire, q), release: statement(sqlRelease, q), abandon: statement(sqlAbandon, q),
		breakLock: statement(sqlBreak, q), renew: statement(sqlRenew, q), renewMany: statement(sqlRenewMany, q),
		inspect: statement(sqlInspect, q), guard: statement(sqlGuard, q), sweepOld: statement(sqlSweep, q),
	}, nil
}

// Schema is the migration that makes the table, for those who do not let the
// driver make it.
func Schema(table string) (string, error) {
	q, err := quote(table)
	if err != nil {
		return "", err
	}
	return statement(sqlSchema, q), nil
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// quote checks a table's name, and quotes it so that its case counts.
func quote(table string) (string, error) {
	parts := strings.Split(table, ".")
	for _, p := range parts {
		if len(parts) > 2 || !identifier.MatchString(p) {
			return "", backend.Invalid("table", table, "table or schema.table, each of letters, digits and underscores, at most 63, and not beginning with a digit")
		}
	}
	return pgx.Identifier(parts).Sanitize(), nil
}
