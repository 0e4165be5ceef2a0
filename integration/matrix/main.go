// Command matrix writes the servers of the reports in a folder into docs/matrix.csv, and docs/matrix.md, which
// summarizes it, or with -check reports how they differ from the files.
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/interlock-go/lock/conformance"
)

func main() {
	log.SetFlags(0)
	check := flag.Bool("check", false, "compare what the reports are about instead of writing")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: matrix [-check] FOLDER-OF-REPORTS FOLDER-OF-DOCUMENTS")
	}
	run, err := collect(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	full, page := filepath.Join(flag.Arg(1), "matrix.csv"), filepath.Join(flag.Arg(1), "matrix.md")
	committed, err := load(full)
	if err != nil {
		log.Fatal(err)
	}
	if !*check {
		if err := save(merge(committed, run), full, page); err != nil {
			log.Fatal(err)
		}
		return
	}
	wrong, missing := compare(committed, run)
	if len(missing) > 0 {
		fmt.Printf("%s: not compared, since this run has no report of it: %s\n", full, strings.Join(missing, ", "))
	}
	for _, w := range wrong {
		fmt.Println(w)
	}
	if len(wrong) > 0 {
		log.Fatalf("%s is not what the runs have shown; run make test-all and make matrix", full)
	}
}

func load(name string) (table, error) {
	f, err := os.Open(name)
	if err != nil {
		return table{}, err
	}
	defer f.Close()
	return read(f)
}

func save(t table, full, page string) error {
	var b bytes.Buffer
	if err := t.write(&b); err != nil {
		return err
	}
	if err := os.WriteFile(full, b.Bytes(), 0o644); err != nil { //nolint:gosec // a document in the repository
		return err
	}
	return os.WriteFile(page, []byte(t.summary()), 0o644) //nolint:gosec // a document in the repository
}

// collect returns the table of the reports in a folder.
func collect(dir string) (table, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no reports: make test or make test-all writes them", dir)
	}
	if err != nil {
		return table{}, err
	}
	var all []*conformance.Report
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return table{}, err
		}
		r, err := conformance.ReadReport(content)
		if err != nil {
			return table{}, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *conformance.Report) int {
		return cmp.Or(cmp.Compare(a.Capabilities.Scope, b.Capabilities.Scope), strings.Compare(a.Name, b.Name))
	})
	return parse(capabilities(all) + "\n" + conformance.Matrix(all...)), nil
}

// capabilities is a table of what the drivers declare.
func capabilities(all []*conformance.Report) string {
	var b strings.Builder
	b.WriteString("| declared |")
	for _, r := range all {
		b.WriteString(" " + r.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, row := range []struct {
		name  string
		value func(*conformance.Report) any
	}{
		{"scope", func(r *conformance.Report) any { return r.Capabilities.Scope }},
		{"a lease ends by", func(r *conformance.Report) any { return r.Capabilities.Loss }},
		{"order", func(r *conformance.Report) any { return r.Capabilities.Order }},
		{"wake-up", func(r *conformance.Report) any { return r.Capabilities.Wake }},
		{"fencing survives", func(r *conformance.Report) any { return r.Capabilities.Fencing }},
		{"a break is pushed", func(r *conformance.Report) any { return r.Capabilities.PushesLoss }},
		{"read locks", func(r *conformance.Report) any { return r.Capabilities.Shared }},
		{"permits", func(r *conformance.Report) any { return r.Capabilities.Permits }},
		{"least TTL", func(r *conformance.Report) any { return r.Capabilities.MinTTL }},
		{"commands per contended cycle", func(r *conformance.Report) any { return bound(r.Budget.HandOffCommands) }},
		{"commands of an idle holder per TTL", func(r *conformance.Report) any { return bound(r.Budget.IdleHolderCommands) }},
		{"commands of an idle waiter per TTL", func(r *conformance.Report) any { return bound(r.Budget.IdleWaiterCommands) }},
	} {
		b.WriteString("| " + row.name + " |")
		for _, r := range all {
			fmt.Fprintf(&b, " %v |", row.value(r))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func bound(v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprint(v)
}
