package app

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The commands of the tutorial that need no server print what it shows.
func TestTutorial(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/tutorial.md")
	if os.IsNotExist(err) {
		t.Skip("the module stands alone, without the documentation")
	} else if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?m)^    go run ./examples/counter( .*|)\n\n```\n((?s:.*?))```$").FindAllStringSubmatch(string(page), -1)
	if len(shown) != 3 {
		t.Fatalf("want three commands with their output, got %q", shown)
	}
	took := regexp.MustCompile(` in [0-9.]+m?s,`)
	for _, m := range shown {
		t.Run(strings.TrimSpace(m[1]), func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if ok, err := run(t.Context(), strings.Fields(m[1]), &out); err != nil || !ok {
				t.Fatalf("%v, %v, %s", ok, err, &out)
			}
			got, want := took.ReplaceAllString(out.String(), ""), took.ReplaceAllString(m[2], "")
			if got != want {
				t.Errorf("the tutorial shows %q, the program prints %q", want, got)
			}
		})
	}
}
