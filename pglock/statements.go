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
	provisionalTTL = 3 * time.Second // the longest TTL of a pushed grant; also in end.sql; and time to answer, in {ask}
	tombstoneTTL   = 5 * time.Minute // also in {tombstone ttl}; data of a dead connection arrives earlier
	channelPrefix  = "interlock_"    // of the channel of a process
	schemaVersion  = "interlock lock table, schema 4"
)

// The protocol. An operation that depends on the queue is a transaction of several statements,
// sent together: the first one locks the row of the lock, so the others see the queue as it is.
//
//go:embed sql/*.sql
var sqlFiles embed.FS

// fragments replaces the names in braces. In {free}, l is the row of the lock.
var fragments = strings.NewReplacer(
	// When the server began with the statement. If the statement waited for the row, this is
	// early, which is safe: a new lease ends sooner, and an old lease is respected for longer.
	"{now}", "statement_timestamp()",
	"{us}", "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint",
	"{channel}", channelPrefix,
	"{version}", schemaVersion,
	"{lease}", "{now} + $5::bigint * interval '1 microsecond'",
	"{free}", "((l.owner IS NULL OR l.expires <= {now}) AND l.weight = 0)",
	// Shared holders are below this place, and tombstones from there to -1.
	"{shared}", "-4611686018427387904",
	"{tombstone place}", "-1 - (hashtextextended($2, 0) & 4611686018427387903)",
	// Of the holder h of the lock l, and of the first one. See holderOf.
	"{share}", "concat_ws(' ', h.waiter, h.token, {micros h.expires - {now}}, {micros {now} - h.granted}, h.weight, coalesce(l.capacity, 0), coalesce(array_to_string(h.slots, ','), ''), coalesce(h.metadata, ''))",
	"{holder}", `CASE WHEN l.weight = 0 THEN l.owner ELSE coalesce((SELECT {share} FROM {table} h WHERE h.name = l.name AND h.place < {shared}
		ORDER BY h.place LIMIT 1), '') END AS holder`,
	// Whether a waiter fits beside those that hold.
	"{fits}", "CASE weight WHEN 0 THEN (SELECT used FROM held) = 0 ELSE weight <= coalesce((SELECT room FROM held), weight) END",
	"{tombstone ttl}", "interval '5 minutes'",
	// Greater than each token of the name before, also if its row was removed: then the row with
	// the floor is as new as the removal. A row that is removed meanwhile is in the snapshot.
	"{first token}", "greatest({us}, (SELECT max(token) + 1 FROM {table} WHERE place = 0 AND name IN ('', $1)))",
	// If the row of the lock was deleted by hand, its holders have lost the lock, and its waiters enter the queue again.
	"{remove orphans}", `DELETE FROM {table} WHERE name = $1 AND (place > 0 OR place < {shared})
		AND NOT EXISTS (SELECT FROM {table} WHERE name = $1 AND place = 0)`,
	// For the statements after this one, which may be planned before the first ANALYZE of the table, or after one that
	// found it full: they would read all waiters and sort them, or be compiled for seconds while the row is locked. The
	// role may have other settings.
	"{settings}", settings("enable_seqscan off, enable_bitmapscan off, enable_indexscan on, enable_nestloop on, enable_sort on, jit off"),
	"{dead}", "coalesce(left(process, 16) = (SELECT process FROM doomed) OR (SELECT everyone FROM doomed), false)",
	"{doomed}", "(left(process, 16) IN (SELECT process FROM doomed) OR EXISTS (SELECT FROM doomed WHERE process = '*'))",
	// Asks a waiter whether its process is alive; and the notification of that.
	"{ask}", "unclaimed = 1, expires = {now} + interval '3 seconds'",
	"{notify asked}", "pg_notify('{channel}' || left(process, 16), 'a ' || waiter)::text",
	// To a waiter: owner, time of the server, remaining lease.
	"{notify second}", `pg_notify('{channel}' || left(second.process, 16), concat_ws(' ', 'h', second.waiter, {us}, {micros changed.expires - {now}}))`,
)

var (
	// {shared place token} is the place of a shared holder.
	sharedPlace = regexp.MustCompile(`\{shared place ([^{}]*)\}`)
	micros      = regexp.MustCompile(`\{micros ([^{}]*)\}`)
	// {commit x} makes the commit synchronous unless x is true. A grant must survive a
	// crash; a change that grants nothing need not, and saves a disk write.
	commit = regexp.MustCompile(`\{commit ([^{}]*)\}`)
)

// settings returns an expression that changes settings until the end of the transaction.
func settings(list string) string {
	set := regexp.MustCompile(`(\w+) (\w+)`).ReplaceAllString(list, "set_config('$1', '$2', true)")
	return "concat(" + set + ")"
}

// statements are the statements for one table.
type statements struct {
	table                                                     string // quoted
	schema, columns, probe, lock, ensure, acquire, end, leave string
	renew, renewMany, inspect, guard, turn, sweep             string
	settings                                                  string // before a statement that is sent alone, for roles that need it
	// of shares
	lockHolders, endAny, share, peek, answer, renewShare, renewShares, keepShare, downgrade string
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
		table: quoted, schema: load("schema"), columns: load("columns"), probe: load("probe"), lock: load("lock"), ensure: load("ensure"),
		acquire: load("acquire"), end: load("end"), leave: load("leave"), renew: load("renew"), renewMany: load("renew_many"),
		inspect: load("inspect"), guard: load("guard"), turn: load("turn"), sweep: load("sweep"),
		lockHolders: load("lock_holders"), endAny: load("end_any"), share: load("share"), peek: load("peek"), answer: load("answer"), renewShare: load("renew_share"), renewShares: load("renew_shares"),
		keepShare: load("keep_share"), downgrade: load("downgrade"),
		settings: expand("SELECT {settings}", quoted),
	}, nil
}

// expand replaces what is in braces until nothing is left to replace.
func expand(text, table string) string {
	for old := ""; old != text; {
		old = text
		text = fragments.Replace(strings.ReplaceAll(text, "{table}", table))
		text = sharedPlace.ReplaceAllString(text, "($1 - 9223372036854775807)")
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
