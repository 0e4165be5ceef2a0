package lockcmd

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// JSON reports whether the user asked for JSON.
func (a *App) JSON() bool { return a.json }

// Interactive reports whether a command may show its progress on Err.
func (a *App) Interactive() bool { return !a.json && !a.quiet && isTerminal(a.Err) }

// Result writes a result to Out: v as JSON over several lines, or the text.
func (a *App) Result(v any, text func(w io.Writer)) error {
	if !a.json {
		text(a.Out)
		return nil
	}
	e := jsonEncoder(a.Out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// line writes a result to Out on one line: v as JSON, or the text.
func (a *App) line(v any, text string) error {
	if !a.json {
		_, err := fmt.Fprintln(a.Out, text)
		return err
	}
	return jsonEncoder(a.Out).Encode(v)
}

func jsonEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// Notice writes a message to Err, unless the user asked for --quiet. event and fields
// are part of its JSON form.
func (a *App) Notice(event, text string, fields map[string]any) {
	if !a.quiet {
		a.say(event, text, fields)
	}
}

// say writes an error to Err, also with --quiet. It does not wait until the message is
// written.
func (a *App) say(event, text string, fields map[string]any) {
	text = Redact(text)
	if !a.json {
		fmt.Fprintf(a.messages, "%s: %s\n", a.Program.Name, text)
		return
	}
	line := map[string]any{"event": event, "message": text}
	for k, v := range fields {
		line[k] = v
	}
	_ = jsonEncoder(a.messages).Encode(line) // cannot fail
}

// Logger returns a logger to Err, or nil without --verbose.
func (a *App) Logger() *slog.Logger {
	if !a.verbose {
		return nil
	}
	opts := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		switch v := attr.Value.Any().(type) {
		case error:
			return slog.String(attr.Key, Redact(v.Error()))
		case string:
			return slog.String(attr.Key, Redact(v))
		}
		return attr
	}}
	if a.json {
		return slog.New(slog.NewJSONHandler(a.messages, opts))
	}
	return slog.New(slog.NewTextHandler(a.messages, opts))
}

// holderText describes a holder. Text of the holder is quoted unless it is printable:
// any client may have written it.
func holderText(h *lock.Holder) string {
	var s string
	switch {
	case h.Metadata != "":
		s = quoted(h.Metadata)
	case h.Foreign:
		s = "a foreign owner " + quoted(h.Owner)
	case h.Owner != "":
		s = quoted(h.Owner)
	default:
		s = "an unknown holder"
	}
	if h.Foreign && h.Metadata != "" {
		s += " (foreign)"
	}
	if !h.Share.Exclusive() {
		s += ", " + shareText(h)
	}
	if h.Token != 0 {
		s += fmt.Sprintf(", token %d", h.Token)
	}
	if h.Age > 0 {
		s += fmt.Sprintf(", for %s", round(h.Age))
	}
	if h.Left > 0 {
		s += fmt.Sprintf(", %s left", round(h.Left))
	}
	return s
}

// shareText describes the share of a holder that is not exclusive.
func shareText(h *lock.Holder) string {
	switch {
	case h.Share.Capacity == 0:
		return "reads"
	case len(h.Slots) == 0:
		return fmt.Sprintf("permits %v", h.Share)
	}
	return fmt.Sprintf("permits %v (%s)", h.Share, slotsText(h.Slots))
}

// quoted returns s, quoted unless it is printable. Only the owner of a foreign lock can be
// longer than limit, and is cut.
func quoted(s string) string {
	const limit = backend.MaxName
	if len(s) > limit {
		end := limit
		for ; end > limit-utf8.UTFMax && !utf8.RuneStart(s[end]); end-- {
		}
		s = s[:end] + "..."
	}
	if !printable(s) {
		return strconv.Quote(s)
	}
	return s
}

// printable reports whether a terminal shows s as it is.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}

// errorText returns the text of an error on one line.
func errorText(err error) string {
	s := Redact(strings.TrimPrefix(err.Error(), "lock: "))
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// round makes a duration short: 29s, 1.2s, 150ms.
func round(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}
