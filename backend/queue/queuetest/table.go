package queuetest

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// String returns a run as a table: the attempts, the operations with the answers and events that the Reference has,
// what the Service answered if that differs, and how it differs.
func (r *run) String() string {
	var b strings.Builder
	for i, a := range r.seq.attempts {
		if r.uses(i) {
			fmt.Fprintf(&b, "attempt %s: %s, %v, TTL %v\n", r.seq.name(i), processName(a.process), a.share, a.ttl)
		}
	}
	var first time.Duration // of an operation: a disconnect has no time
	for _, line := range r.rows {
		if first == 0 {
			first = line.at
		}
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, line := range r.rows {
		if line.hidden {
			continue
		}
		at := max(0, line.at-first).Round(100 * time.Microsecond)
		_, _ = fmt.Fprintf(w, "%v\t%s\t%s\t", at, line.process, line.description)
		switch {
		case line.err != nil:
			_, _ = fmt.Fprintf(w, "error: %v\n", line.err)
		case line.want == nil:
			_, _ = fmt.Fprintln(w)
		case line.got == nil:
			_, _ = fmt.Fprintln(w, r.format(line.want, true))
		default:
			_, _ = fmt.Fprintf(w, "want %s\n\t\t\tgot  %s\n", r.format(line.want, true), r.format(line.got, true))
		}
		for _, e := range line.events {
			_, _ = fmt.Fprintf(w, "\t\t\t→ %s %s\n", e.Process, r.formatEvent(e))
		}
	}
	_ = w.Flush()
	return b.String() + r.failure
}

// uses reports whether an operation of the sequence, but for its end, is of an attempt.
func (r *run) uses(attempt int) bool {
	for _, o := range r.seq.ops {
		if o.attempt == attempt {
			return true
		}
	}
	return false
}

func (r *run) formatNames(s string) string {
	pairs := []string{r.key, "the key"}
	for i, owner := range r.owners {
		pairs = append(pairs, owner, r.seq.name(i))
	}
	return strings.NewReplacer(pairs...).Replace(s)
}

func (r *run) formatEvents(events []Event) string {
	texts := []string{}
	for _, e := range events {
		texts = append(texts, r.formatEvent(e))
	}
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, "; ")
}

func (r *run) formatEvent(e Event) string {
	text := fmt.Sprintf("%s(%s)", e.Kind, e.Owner)
	if e.Key != "" && e.Key != r.key {
		text += fmt.Sprintf(" of key %q", e.Key)
	}
	if fields := eventFields(e); len(fields) > 0 {
		text += " " + r.format(fields, true)
	}
	return r.formatNames(text)
}

// format returns fields as a table shows them, without those that are false or zero. short leaves out the details.
func (r *run) format(fields []field, short bool) string {
	var parts []string
	for _, f := range fields {
		if short && (f.optional || f.name == "metadata") {
			continue
		}
		switch v := f.value.(type) {
		case bool:
			if v {
				parts = append(parts, f.name)
			} else if !short {
				parts = append(parts, "not "+f.name)
			}
		case token:
			parts = append(parts, r.formatToken(v))
		case time.Duration:
			if v != 0 || !short {
				parts = append(parts, f.name+" "+v.Round(10*time.Microsecond).String())
			}
		case string:
			if v != "" && v != "[]" {
				parts = append(parts, f.name+" "+v)
			}
		}
	}
	if len(parts) == 0 {
		return "ok"
	}
	return r.formatNames(strings.Join(parts, ", "))
}

// formatToken returns "token 1" for the first token that was compared, and so on.
func (r *run) formatToken(t token) string {
	for i := range r.cmp.want {
		if t == r.cmp.want[i] || t == r.cmp.got[i] {
			return fmt.Sprintf("token %d", i+1)
		}
	}
	return fmt.Sprintf("token %d", uint64(t))
}
