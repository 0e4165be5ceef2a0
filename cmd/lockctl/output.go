package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/interlock-go/lock"
)

// streams are what a process has.
type streams struct {
	in       *os.File
	out, err *os.File
}

// output writes what lockctl itself says: results to stdout, everything else to
// stderr. With --json both are one JSON value a line (results may span several).
type output struct {
	streams
	json    bool
	quiet   bool
	verbose bool
	mu      sync.Mutex // notices come from several goroutines
}

// result writes v as JSON, or text.
func (o *output) result(v any, text func(w io.Writer)) error {
	if !o.json {
		text(o.out)
		return nil
	}
	e := json.NewEncoder(o.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// notice tells the user on stderr what is going on, unless --quiet. The fields
// go into the JSON form.
func (o *output) notice(event, text string, fields map[string]any) {
	if o.quiet {
		return
	}
	o.say(event, text, fields)
}

// say writes to stderr even with --quiet.
func (o *output) say(event, text string, fields map[string]any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text = redact(text)
	if !o.json {
		fmt.Fprintf(o.err, "lockctl: %s\n", text)
		return
	}
	line := map[string]any{"event": event, "message": text}
	for k, v := range fields {
		line[k] = v
	}
	e := json.NewEncoder(o.err)
	e.SetEscapeHTML(false)
	_ = e.Encode(line) // nobody is left to tell
}

// logger is what -v asks for, or nil.
func (o *output) logger() *slog.Logger {
	if !o.verbose {
		return nil
	}
	opts := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case error:
			return slog.String(a.Key, redact(v.Error()))
		case string:
			return slog.String(a.Key, redact(v))
		}
		return a
	}}
	if o.json {
		return slog.New(slog.NewJSONHandler(o.err, opts))
	}
	return slog.New(slog.NewTextHandler(o.err, opts))
}

// holderText says who holds a lock. What a holder says of itself is quoted unless
// it is plain: it may come from anywhere.
func holderText(h *lock.Holder) string {
	var s string
	switch {
	case h.Metadata != "":
		s = plain(h.Metadata)
	case h.Foreign:
		s = "a foreign owner " + plain(h.Owner)
	case h.Owner != "":
		s = plain(h.Owner)
	default:
		s = "somebody unknown"
	}
	if h.Foreign && h.Metadata != "" {
		s += " (foreign)"
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

func plain(s string) string {
	const most = 120
	if len(s) > most {
		s = s[:most] + "..."
	}
	if !printable(s) {
		return strconv.Quote(s)
	}
	return s
}

// printable tells whether a terminal shows s as it is, and does nothing else.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}

// errorText is an error on one line of a result.
func errorText(err error) string {
	s := redact(strings.TrimPrefix(err.Error(), "lock: "))
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// line writes v as JSON on one line, or text.
func (o *output) line(v any, text string) error {
	if !o.json {
		_, err := fmt.Fprintln(o.out, text)
		return err
	}
	e := json.NewEncoder(o.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
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
