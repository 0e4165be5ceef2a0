package lockcmd

import (
	"testing"
)

func TestRoff(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain": "plain", ".TH x": `\&.TH x`, "'x": `\(aqx`, `a\nb --url ~/x^y`: `a\enb \-\-url \(ti/x\(hay`, "": "",
	} {
		if got := roff(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
