package lockcmd

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/interlock-go/lock"
)

// columnGap is the number of spaces between two columns of a table.
const columnGap = 2

// screen describes the terminal that a table is for. The zero value is no terminal.
type screen struct {
	width, height int // 0 if unknown
	bold          bool
}

// screen describes the terminal of Out.
func (a *App) screen() screen {
	width, height := terminalSize(a.Out)
	// no-color.org: any value but the empty one
	return screen{width, height, hasEscapes(a.Out) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"}
}

// writeTable writes a line for each lock with the given columns. If s has a width, names
// and descriptions of holders are cut so that the lines have at most width characters.
func writeTable(w io.Writer, columns []string, held []lock.Info, s screen) {
	rows := [][]string{columns}
	for _, i := range held {
		cells := make([]string, len(columns))
		for k, column := range columns {
			cells[k] = cell(column, &i)
		}
		rows = append(rows, cells)
	}
	if s.width > 0 {
		fit(rows, s.width)
	}
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, columnGap, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // a buffer does not fail
	head, rest, _ := strings.Cut(b.String(), "\n")
	if s.bold {
		head = "\x1b[1m" + head + "\x1b[m"
	}
	fmt.Fprintf(w, "%s\n%s", head, rest)
}

// fit cuts the cells of the columns NAME and HOLDER, the widest first, until the rows fit
// into width characters or these columns have the least width. The first row is the head.
func fit(rows [][]string, width int) {
	const least = 12
	widths := make([]int, len(rows[0]))
	over := columnGap*(len(widths)-1) - width
	for k := range widths {
		for _, cells := range rows {
			widths[k] = max(widths[k], utf8.RuneCountInString(cells[k]))
		}
		over += widths[k]
	}
	for ; over > 0; over-- {
		widest := -1
		for k, column := range rows[0] {
			if (column == "NAME" || column == "HOLDER") && widths[k] > least && (widest < 0 || widths[k] > widths[widest]) {
				widest = k
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	for _, cells := range rows {
		for k := range cells {
			cells[k] = cut(cells[k], widths[k])
		}
	}
}

// cut returns s in at most width characters, the last of them "..." if it was longer.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-3]) + "..."
}
