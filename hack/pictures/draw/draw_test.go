package draw

import (
	"slices"
	"strings"
	"testing"
)

func render(draw func(*Canvas)) (string, error) {
	out, err := Picture{Name: "test", Title: "a < b", Alt: "alternative text", Draw: draw}.Render()
	return string(out), err
}

func TestRenderRefusesWhatIsUnreadable(t *testing.T) {
	for name, tt := range map[string]struct {
		draw func(*Canvas)
		want string
	}{
		"a word that is wider than its box": {func(c *Canvas) { c.Box(20, 20, 60, 0, Plain, "internationalisation") }, "needs"},
		"two texts at one place": {func(c *Canvas) {
			c.Text(20, 20, 200, "start", "", "first")
			c.Text(30, 25, 200, "start", "", "second")
		}, "overlap"},
		"a box outside":  {func(c *Canvas) { c.Box(500, 20, 100, 0, Plain, "x") }, "not within"},
		"a text outside": {func(c *Canvas) { c.Text(-20, 20, 200, "start", "", "x") }, "outside"},
	} {
		if _, err := render(tt.draw); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}

func TestRenderIsDeterministicAndEscapes(t *testing.T) {
	draw := func(c *Canvas) {
		y := Sequence(c, 16, []string{"A", "B"}, Begin(0, Good), Send(0, 1, "x < y & z"), Note(0, 1, Warn, "both"))
		y = Timeline(c, y, []Lane{{"lane", []Bar{{0, 50, Good, "bar"}}}}, []Mark{{At: 50, Text: "below"}, {At: 60, Above: true, Text: "above"}})
		y = Ladder(c, y, "yes", "no", "last", Rung{"question", "answer", Good})
		y = Stack(c, y, Layer{Kind: Plain, Boxes: []string{"a", "b"}, Below: "beside"}, Layer{Kind: Plain, Boxes: []string{"c"}})
		y = Strips(c, y, Row{"row", []Cell{{"cell", 3, Dim}}})
		Plot(c, y, 3, Group{"group", []Value{{"value", 1.5, Plain}}})
	}
	first, err := render(draw)
	if err != nil {
		t.Fatal(err)
	}
	if second, _ := render(draw); first != second {
		t.Error("two renderings differ")
	}
	for _, want := range []string{"x &lt; y &amp; z", "<title id=\"t\">a &lt; b</title>", "prefers-color-scheme:dark", ">1.50<", ">above<"} {
		if !strings.Contains(first, want) {
			t.Errorf("want %q in the picture", want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		text  string
		limit int
		want  []string
	}{
		{"one", 100, []string{"one"}},
		{"one two three", 70, []string{"one two", "three"}},
		{"one\ntwo", 100, []string{"one", "two"}},
		{"extraordinary", 20, []string{"extraordinary"}},
	} {
		if got := wrap(tt.text, tt.limit, false); !slices.Equal(got, tt.want) {
			t.Errorf("wrap(%q, %d): got %q, want %q", tt.text, tt.limit, got, tt.want)
		}
	}
}
