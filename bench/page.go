package bench

import (
	"cmp"
	"embed"
	"fmt"
	"io"
	"math"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

//go:embed *.md.tmpl
var templates embed.FS

// page writes a page of docs from a template. Alternative texts of pictures are those of hack/pictures.
func page(w io.Writer, name string, data any) error {
	t, err := template.New(name).Funcs(template.FuncMap{"fold": fold, "title": title}).ParseFS(templates, name)
	if err != nil {
		return err
	}
	return t.Execute(w, data)
}

// merge returns a new page, with the sections of those services that only the page before it has. So the services can be
// measured one after the other.
func merge(old, new string, services []string) string {
	before, now := sections(old), sections(new)
	var b strings.Builder
	b.WriteString(now[""])
	for _, s := range services {
		b.WriteString(cmp.Or(now[s], before[s]))
	}
	b.WriteString(now[lastSection])
	return b.String()
}

const lastSection = "Measure it yourself"

// sections returns the sections of a page by their headings, and what is before the first one.
func sections(text string) map[string]string {
	const heading = "\n## "
	out := map[string]string{}
	for i, part := range strings.Split(text, heading) {
		name, _, _ := strings.Cut(part, "\n")
		if i == 0 {
			out[""] = part
			continue
		}
		out[name] = heading + part
	}
	return out
}

// machine returns a description of a machine and of the day of a run.
func machine(m measure.Machine, started time.Time) string {
	return fmt.Sprintf("%d cores, %s, %s/%s, %s, on %s", m.Cores, m.CPU, m.OS, m.Arch, m.Go, started.Format(time.DateOnly))
}

// fold breaks a paragraph into lines of at most 120 characters.
func fold(text string) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case length+1+n > 120:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += n
	}
	return b.String()
}

// title returns the name of a kind as the beginning of a sentence.
func title(kind measure.Kind) string {
	text := strings.ReplaceAll(string(kind), "-", " ")
	return strings.ToUpper(text[:1]) + text[1:]
}

// formatFigure writes a figure, – if it was not measured.
func formatFigure(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return measure.Number(v)
}
