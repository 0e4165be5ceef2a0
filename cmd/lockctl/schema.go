package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/mysqllock"
	"github.com/interlock-go/lock/pglock"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the statements that make the lock table of a database",
		Long: `Print the statements that make the lock table of a database, for a migration or
for somebody who has the right to run them. The URL says which database product
and, by its parameter table, which name; nothing is connected to, and the rest of
the URL is not looked at. Let the clients then connect with create=false.`,
		Example: `  lockctl schema --url postgres: > 0042_locks.sql
  lockctl schema --url 'postgres://db/shop?table=infra.locks' | psql shop
  lockctl schema --url 'mysql://db/shop?table=locks' | mysql shop`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			raw := a.url
			if raw == "" {
				raw = a.getenv(envURL)
			}
			if raw == "" {
				return usagef("schema needs the URL of a database: want --url or %s with one of %s", envURL, databases())
			}
			s, err := schemaOf(raw)
			if err != nil {
				return err
			}
			return a.result(s, func(w io.Writer) { fmt.Fprintln(w, s.SQL) })
		},
	}
}

// schema is what makes a lock table.
type schema struct {
	Table string `json:"table"`
	SQL   string `json:"sql"`
}

var schemaFunctions = map[string]struct {
	table  string // unless another is asked for
	schema func(table string) (string, error)
}{
	"postgres":   {pglock.DefaultTable, pglock.Schema},
	"postgresql": {pglock.DefaultTable, pglock.Schema},
	"mysql":      {mysqllock.DefaultTable, mysqllock.Schema},
	"mariadb":    {mysqllock.DefaultTable, mysqllock.Schema},
}

func databases() string { return "postgres://..., mysql://..." }

// schemaOf returns the statements for the table of a URL, each ended by a semicolon.
func schemaOf(raw string) (schema, error) {
	u, err := backend.ParseURL(raw)
	if err != nil {
		return schema{}, err
	}
	f, ok := schemaFunctions[u.Scheme]
	if !ok {
		return schema{}, usagef("no schema for URLs of scheme %q: only a database needs a table; want %s", u.Scheme, databases())
	}
	// Only this one: what else a client needs, such as files, is not here.
	_, query, _ := strings.Cut(raw, "?")
	all, err := url.ParseQuery(query)
	if err != nil {
		return schema{}, usagef("malformed query in the URL") // never: it was parsed before
	}
	table := f.table
	if given, ok := all["table"]; ok {
		p := backend.NewParams(url.Values{"table": given})
		table = p.String("table", "")
		if err := p.Err(); err != nil {
			return schema{}, err
		}
	}
	sql, err := f.schema(table)
	if err != nil {
		return schema{}, err
	}
	return schema{table, strings.TrimRight(sql, "; \n") + ";"}, nil
}
