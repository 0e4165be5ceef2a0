package lockcmd

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// A table is not wider than the terminal: names and descriptions are cut, numbers are not.
func TestTableWidth(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 50)
	held := []lock.Info{heldFor(long, 90*time.Second), heldFor("short", time.Second)}
	held[0].Holder.Token = 1795383646527238
	for width, want := range map[int]int{
		0: 138, 200: 138, 120: 120, 100: 100, 80: 80,
		20: 59, // the least width
	} {
		var b strings.Builder
		writeList(&b, held, screen{width: width})
		widest := 0
		for line := range strings.Lines(b.String()) {
			widest = max(widest, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
		}
		if widest != want {
			t.Errorf("width %d: %d characters, want %d:\n%s", width, widest, want, &b)
		}
		if text := b.String(); !strings.Contains(text, "1795383646527238") || !strings.Contains(text, "of short") || strings.Contains(text, "...") != (want < 138) {
			t.Errorf("width %d:\n%s", width, text)
		}
	}
	var b strings.Builder
	writeList(&b, held[1:], screen{bold: true})
	if want := "\x1b[1mNAME   TOKEN  LEFT  WAITERS  HOLDER\x1b[m\nshort  7      9s    0        of short\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// Only a text that no client of the library can have is cut.
func TestQuotedLength(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		strings.Repeat("x", backend.MaxName):             strings.Repeat("x", backend.MaxName),
		strings.Repeat("é", backend.MaxName):             strings.Repeat("é", backend.MaxName/2) + "...",
		strings.Repeat("é", backend.MaxName/2-1) + "aéé": strings.Repeat("é", backend.MaxName/2-1) + "a...",
	} {
		if got := quoted(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
