package pglock

import (
	"embed"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// DefaultTable is the name of the lock table unless the caller sets another.
const DefaultTable = "interlock"

const (
	provisionalTTL = 3 * time.Second // the longest TTL of a pushed grant; also in {provisional ttl}
	tombstoneTTL   = 5 * time.Minute // also in {tombstone}; data of a dead connection arrives earlier
	channelPrefix  = "interlock_"    // of the channel of a process
	schemaVersion  = "interlock lock table, schema 2"
)

// The protocol: each operation is one statement. Text in braces stands for what
// several statements share.
//
//go:embed sql/*.sql
var sqlFiles embed.FS

// fragments replaces the names in braces. In {hand over}, l is the row before the
// change and next is the first entry of its queue.
var fragments = strings.NewReplacer(
	// When the statement began. If the statement waited for the row, this is early, which
	// is safe: a new lease ends sooner, and an old lease is respected for longer.
	"{now}", "statement_timestamp()",
	"{us}", "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint",
	"{channel}", channelPrefix,
	"{version}", schemaVersion,
	"{provisional ttl}", "least({ttl next}, 3000) * interval '1 millisecond'",
	"{hand over}", `(token, owner, process, metadata, granted, expires, queue) = (
		SELECT CASE WHEN next IS NULL THEN l.token ELSE greatest(l.token + 1, {us}) END,
			left(next, 32), {process next}, {metadata next}, {now},
			CASE WHEN next IS NOT NULL THEN {now} + {provisional ttl} END, l.queue[2:]
		FROM (SELECT l.queue[1] AS next) s)`,
	"{tombstone}", "$2 || ' ' || ({us} + 300000000)",
	"{live tombstones}", "CASE WHEN l.gone = '{}' THEN l.gone ELSE ARRAY(SELECT g FROM unnest(l.gone) g WHERE substr(g, 34)::bigint > {us}) END",
	"{new tombstones}", "CASE WHEN $3 THEN {live tombstones} || ARRAY[{tombstone}] ELSE l.gone END",
	// The lease ended so long ago that each waiter has died: a waiter asks half a lease after
	// the end of the lease, and gives up when the server does not answer for its TTL.
	"{dead queue}", "coalesce(l.expires < {now} - interval '1 hour' - substr(l.queue[1], 84, 13)::bigint * interval '1 millisecond', false)",
	// Fields of an entry of the queue.
	"{process next}", "substr(next, 34, 49)",
	"{ttl next}", "substr(next, 84, 13)::bigint",
	"{metadata next}", "substr(next, 98)",
	// The hash of the secret of the attempt ahead of $2, which is the holder if $2 is the first waiter.
	"{hash ahead}", "coalesce(substr(queue[(SELECT n FROM unnest(queue) WITH ORDINALITY AS u(q, n) WHERE left(q, 32) = $2) - 1], 51, 32), right(process, 32))",
	// To the new holder: owner, token, expiry, remaining lease, name.
	"{notify grant}", "pg_notify({new holder}, {grant})",
	"{new holder}", "'{channel}' || left(changed.process, 16)",
	"{grant}", `'g ' || changed.owner || ' ' || changed.token || ' ' || {micros changed.expires} || ' ' || {micros changed.expires - {now}} || ' ' || encode($1, 'hex')`,
	// To the first waiter: owner, time of the server, remaining lease.
	"{notify head}", `pg_notify('{channel}' || substr(head, 34, 16), 'h ' || left(head, 32) || ' ' || {us} || ' ' || {micros changed.expires - {now}})`,
)

var (
	micros = regexp.MustCompile(`\{micros ([^{}]*)\}`)
	// {commit x} makes the commit synchronous unless x is true. A grant must survive a
	// crash; a change that grants nothing need not, and saves a disk write.
	commit = regexp.MustCompile(`\{commit ([^{}]*)\}`)
)

// statements are the statements for one table.
type statements struct {
	table                                                   string // quoted
	schema, probe, acquire, release, abandon, breakLock     string
	renew, renewMany, inspect, guard, deleteUnused, columns string
}

func newStatements(table string) (statements, error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return statements{}, err
	}
	load := func(name string) string {
		text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
		if err != nil {
			panic(err) // not embedded
		}
		return expand(string(text), quoted)
	}
	return statements{
		table: quoted, schema: load("schema"), probe: load("probe"), acquire: load("acquire"), release: load("release"),
		abandon: load("abandon"), breakLock: load("break"), renew: load("renew"), renewMany: load("renew_many"),
		inspect: load("inspect"), guard: load("guard"), deleteUnused: load("sweep"), columns: load("columns"),
	}, nil
}

// expand replaces what is in braces until nothing is left to replace.
func expand(text, table string) string {
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

// Schema returns the statements that create the table, for an application that
// creates it by a migration of its own. The error is ErrInvalid for a bad name.
func Schema(table string) (string, error) {
	s, err := newStatements(table)
	return s.schema, err
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// quoteTable checks the name of a table and quotes it, so that it is case-sensitive.
func quoteTable(table string) (string, error) {
	parts := strings.Split(table, ".")
	for _, p := range parts {
		if len(parts) > 2 || !identifier.MatchString(p) {
			return "", backend.Invalid("table", table, "table or schema.table, each of letters, digits and underscores, at most 63, and not beginning with a digit")
		}
	}
	return pgx.Identifier(parts).Sanitize(), nil
}
