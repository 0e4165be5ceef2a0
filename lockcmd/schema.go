package lockcmd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// Schema describes the lock table of a driver.
type Schema struct {
	Table string                             // the default name
	SQL   func(table string) (string, error) // returns the statements that create a table
}

func (a *App) schemaCommand() *Command {
	return &Command{
		Use:   "schema",
		Short: "Print the statements that create the lock table of a database",
		Long: `Print the statements that create the lock table of a database, for a migration or
for a user who may run them. The scheme of the URL selects the product and its
parameter table the name; schema reads nothing else of the URL and does not connect.
Let the clients then connect with create=false.`,
		Example: `  lockctl schema --url postgres: > 0042_locks.sql
  lockctl schema --url 'postgres://db/shop?table=infra.locks' | psql shop
  lockctl schema --url 'mysql://db/shop?table=locks' | mysql shop`,
		Run: func(context.Context, []string) error {
			raw := firstOf(a.url, a.getenv(envURL))
			if raw == "" {
				return Usagef("schema needs the URL of a database: want --url or %s with one of %s", envURL, a.databases())
			}
			table, sql, err := a.schemaOf(raw)
			if err != nil {
				return err
			}
			result := struct {
				Table string `json:"table"`
				SQL   string `json:"sql"`
			}{table, sql}
			return a.Result(result, func(w io.Writer) { fmt.Fprintln(w, sql) })
		},
	}
}

// databases returns the accepted URLs.
func (a *App) databases() string {
	return strings.Join(slices.Sorted(maps.Keys(a.Program.Schemas)), "://..., ") + "://..."
}

// schemaOf returns the table of a URL and its statements, each ended by a semicolon.
func (a *App) schemaOf(raw string) (table, sql string, err error) {
	u, err := backend.ParseURL(raw)
	if err != nil {
		return "", "", err
	}
	s, ok := a.Program.Schemas[u.Scheme]
	if !ok {
		return "", "", Usagef("no schema for URLs of scheme %q: only a database needs a table; want %s", u.Scheme, a.databases())
	}
	// Only the table is read: the files that other parameters name may not exist here.
	_, query, _ := strings.Cut(raw, "?")
	params, err := url.ParseQuery(query)
	if err != nil {
		return "", "", Usagef("malformed query in the URL") // never: ParseURL accepted it
	}
	table = s.Table
	if given, ok := params["table"]; ok {
		p := backend.NewParams(url.Values{"table": given})
		table = p.String("table", "")
		if err := p.Err(); err != nil {
			return "", "", err
		}
	}
	if sql, err = s.SQL(table); err != nil {
		return "", "", err
	}
	return table, strings.TrimRight(sql, "; \n") + ";", nil
}
