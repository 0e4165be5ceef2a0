package pglock

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// sqlState returns the code of an error of the server, or "".
func sqlState(err error) string {
	if err == nil {
		return ""
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// rolledBack reports whether the server rolled back the statement in favor of another
// transaction, so that it may be sent again.
func rolledBack(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03": // the last one: lock_timeout
		return true
	}
	return false
}

// tooManyConnections reports whether the server refused a connection because of a
// limit of the server, the database or the role.
func tooManyConnections(err error) bool { return sqlState(err) == "53300" }

// explain returns the error of a failed statement. It is marked by NotExecuted or
// ErrUncertain. within is the context that limited the statement to the timeout.
func (s *server) explain(ctx, within context.Context, err error) error {
	notExecuted := !backend.OutcomeUnknown(err) || pgconn.SafeToRetry(err)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && !notExecuted {
		// The server may end a connection after the commit.
		severity := pg.SeverityUnlocalized
		if severity == "" { // a pooler may send the localized field only
			severity = pg.Severity
		}
		notExecuted = severity != "FATAL" && severity != "PANIC"
	}
	switch {
	case ctx.Err() == nil && within.Err() != nil:
		what := "no answer"
		switch {
		case rolledBack(err):
			what = "rolled back in favor of other transactions, each time"
		case notExecuted:
			what = "no connection"
		}
		text := flat(err.Error())
		what = fmt.Sprintf("%s: %s within %v", s.at(text), what, s.opt.timeout)
		switch {
		case rolledBack(err):
			err = fmt.Errorf("%s (%w)", what, flatError{err}) // an attempt asks again
		case text == within.Err().Error(), !notExecuted && errors.Is(err, within.Err()):
			err = errors.New(what)
		default: // not wrapped: it must not look like the deadline of the caller
			err = fmt.Errorf("%s (%s)", what, text)
		}
	case call.Ended(ctx) != nil && errors.Is(err, call.Ended(ctx)):
		err = fmt.Errorf("%s: %w", s.at(flat(err.Error())), flatError{err})
	case call.Ended(ctx) != nil:
		err = fmt.Errorf("%s: %w: %w", s.at(flat(err.Error())), flatError{err}, call.Ended(ctx))
	default:
		err = s.describe(err)
	}
	if notExecuted {
		return backend.NotExecuted(err)
	}
	return backend.Uncertain(err)
}

// describe adds to an error of the server its address and what to do about it. The result
// does not match an error of a context: it is a bound of the driver that has passed.
func (s *server) describe(err error) error {
	at, hint := s.at(flat(err.Error())), s.hint(sqlState(err))
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %s", at, flat(err.Error()))
	case hint != "":
		return fmt.Errorf("%s: %w (%s)", at, flatError{err}, hint)
	}
	return fmt.Errorf("%s: %w", at, flatError{err})
}

// flatError is an error whose text is one line.
type flatError struct{ error }

func (e flatError) Error() string { return flat(e.error.Error()) }
func (e flatError) Unwrap() error { return e.error }

// dialDetails are parts of an error of pgx that repeat the address before them.
var dialDetails = regexp.MustCompile(` \([^ ()]*\)(: )|(: )(?:dial error: )?dial \w+ \S+: `)

// flat returns a text in one line, without lines and addresses that are repeated: pgx has
// one line for each address, and another one for each way to use TLS.
func flat(text string) string {
	head, details, multiple := strings.Cut(text, "\n")
	if !multiple {
		return text
	}
	var lines []string
	last := "" // address
	for line := range strings.Lines(details) {
		line = dialDetails.ReplaceAllString(strings.TrimSpace(line), "$1$2")
		if address, rest, found := strings.Cut(line, ": "); found && address == last {
			line = rest
		} else {
			last = address
		}
		if line != "" && !slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, line) }) {
			lines = append(lines, line)
		}
	}
	if !strings.HasSuffix(head, ":") {
		head += ";"
	}
	return head + " " + strings.Join(lines, "; ")
}

// at returns how an error begins: with the addresses, unless text contains them.
func (s *server) at(text string) string {
	for host := range strings.SplitSeq(s.address(), ",") {
		if !strings.Contains(text, host) {
			return "postgres at " + s.address()
		}
	}
	return "postgres"
}

// hint returns what to do about an error code of the server, or "".
func (s *server) hint(code string) string {
	switch code {
	case "42P01", "3F000":
		return fmt.Sprintf("the table %s or %s is missing: set create=true, or apply pglock.Schema or what lockctl schema prints", s.sql.table, s.sql.places)
	case noFunction:
		return fmt.Sprintf("the functions of this version, as %s, are missing: set create=true, or apply pglock.Schema or what lockctl schema prints", s.sql.rule)
	case "42501":
		return fmt.Sprintf("rights needed: USAGE on the schema; SELECT, INSERT, UPDATE and DELETE on %s and %s, as in GRANT SELECT, INSERT, UPDATE, DELETE ON %s, %s TO role; EXECUTE on the functions; and CREATE on the schema to create them",
			s.sql.table, s.sql.places, s.sql.table, s.sql.places)
	case "42703":
		return s.otherTable("its columns are others")
	case readOnly:
		return "the server is a standby or read-only: connect to the primary, with several hosts in the URL if it may move"
	case "53300":
		return "lower pool_size, or raise max_connections"
	}
	return ""
}

const (
	readOnly   = "25006" // SQLSTATE
	noFunction = "42883"
)

// otherTable returns the error text of a table that this version cannot use.
func (s *server) otherTable(why string) string {
	return fmt.Sprintf("the table %s was not created by this driver, or by another version: %s; set another table with table=, or drop it if no client uses it any more", s.sql.table, why)
}

// lost returns ErrLost for a grant that the row does not contain.
func (s *server) lost(key []byte) error {
	return fmt.Errorf("%w: the row %.200q of table %s does not contain this grant", backend.ErrLost, key, s.sql.table)
}

// address returns the hosts of the pool, for errors.
func (s *server) address() string { return hosts(s.pool.Config().ConnConfig) }

func hosts(c *pgx.ConnConfig) string {
	hosts := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if h := fmt.Sprintf("%s:%d", f.Host, f.Port); h != hosts[len(hosts)-1] {
			hosts = append(hosts, h)
		}
	}
	return strings.Join(hosts, ",")
}
