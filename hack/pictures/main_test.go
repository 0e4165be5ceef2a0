package main

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/interlock-go/lock/hack/pictures/draw"
)

const root = "../.."

func all(t *testing.T) []draw.Picture {
	t.Helper()
	out, err := pictures(root)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Each committed picture is what its source draws, and there are no others.
func TestPicturesAreCurrent(t *testing.T) {
	folder := filepath.Join(root, "docs", "images")
	rest := map[string]bool{}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		rest[f.Name()] = true
	}
	for _, p := range all(t) {
		want, err := p.Render()
		if err != nil {
			t.Error(err)
			continue
		}
		if err := wellFormed(string(want)); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		file := p.Name + ".svg"
		got, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil || string(got) != string(want) {
			t.Errorf("docs/images/%s differs from its source (%v): run make images", file, err)
		}
		delete(rest, file)
	}
	for file := range rest {
		t.Errorf("docs/images/%s has no source", file)
	}
}

func wellFormed(text string) error {
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

var embedded = regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]*images/([a-z-]+)\.svg)\)`)

// Each picture is on a page, with its own alternative text; a page in Chinese translates it.
func TestPicturesAreOnPages(t *testing.T) {
	alt, used := map[string]string{}, map[string]bool{}
	for _, p := range all(t) {
		alt[p.Name] = p.Alt
		if n := len(strings.Fields(p.Alt)); n < 15 || n > 90 {
			t.Errorf("%s: the alternative text has %d words, want 15 to 90", p.Name, n)
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := strings.Count(string(text), ".svg)"); n != len(embedded.FindAllString(string(text), -1)) {
			t.Errorf("%s: want pictures as ![alternative text](…images/name.svg)", path)
		}
		for _, m := range embedded.FindAllStringSubmatch(string(text), -1) {
			if got := strings.Join(strings.Fields(m[1]), " "); got != alt[m[3]] && !strings.Contains(path, "zh") || len(got) < 40 {
				t.Errorf("%s: %s: want the alternative text %q, got %q", path, m[3], alt[m[3]], got)
			}
			used[m[3]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range alt {
		if !used[name] {
			t.Errorf("%s is on no page", name)
		}
	}
}

func TestHandOffs(t *testing.T) {
	table := func(service, n string) string {
		return "## " + service + "\n\n| | a | " + handOffColumn + " |\n|---|---|---|\n| Interlock | 9 | " + n + " |\n| " +
			localHandOff + " | 9 | 0.01 |\n| peer | 9 | 3.5 |\n| two writes | 9 | – |\n\n"
	}
	text := table("A", "1.1") + table("B", "1.2") + table("C", "1.3") + table("D", "1.4") + table("E", "1.5")
	groups, err := plotOf(t, "handoff-speed").groups(text + "## Notes\n\n| x | y |\n|---|---|\n| 1 | 2 |\n")
	if err != nil || len(groups) != 5 {
		t.Fatalf("%d groups, %v", len(groups), err)
	}
	if g := groups[1]; g.Heading != "B" || len(g.Values) != 2 || g.Values[0].N != 1.2 || g.Values[1].Name != "peer" {
		t.Errorf("got %+v", g)
	}
	if _, err := plotOf(t, "handoff-speed").groups(strings.ReplaceAll(text, handOffColumn, "another column")); err == nil {
		t.Error("want an error without the column")
	}
}

func TestManyWaiters(t *testing.T) {
	const text = `## A

| | uncontended, RTT |
|---|---|
| Interlock | 2000 |

| | waiters | cycles a second | failures |
|---|---|---|---|
| Interlock | 16 | 569 | 0 |
| Interlock | 2000 | 577 (× 1.02) | 0 |
| peer | 16 | 100 | 0 |
| peer | 2000 | 7 (× 0.07) | 12 |
| other | 2000 | 0 | 2000 |

## B
`
	groups, err := plotOf(t, "many-waiters").groups(text)
	if err != nil || len(groups) != 1 || groups[0].Heading != "A" || len(groups[0].Values) != 3 {
		t.Fatalf("got %+v, %v", groups, err)
	}
	if v := groups[0].Values; v[0].N != 0.577 || v[1].N != 0.007 || v[1].Name != "peer" || v[2].N != 0 {
		t.Errorf("got %+v", v)
	}
	if _, err := plotOf(t, "many-waiters").groups(strings.ReplaceAll(text, "| waiters |", "| others |")); err == nil {
		t.Error("want an error without the column")
	}
}

func plotOf(t *testing.T, name string) plot {
	t.Helper()
	i := slices.IndexFunc(plots, func(p plot) bool { return p.name == name })
	if i < 0 {
		t.Fatalf("no plot is called %s", name)
	}
	return plots[i]
}

func TestGrowthPlots(t *testing.T) {
	var text strings.Builder
	for _, service := range []string{"A", "B", "C", "D", "E"} {
		text.WriteString("## " + service + `

| waiters | cycles a second | failures |
|---|---|---|
| 16 | 500 | 0 |
| 200 | 550 (× 1.10) | 0 |
| 2000 | 400 (× 0.80) | 0 |

| names | names used | kept for a name at first | left of the names, % |
|---|---|---|---|
| 100000 | 100000 | 1.50 | 50 |

`)
	}
	for name, want := range map[string][]draw.Value{
		"growth-waiters": {{Name: "200 waiters", N: 1.1, Kind: draw.Good}, {Name: "2000 waiters", N: 0.8, Kind: draw.Good}},
		"growth-names":   {{Name: "at first", N: 1.5}, {Name: "later", N: 0.5, Kind: draw.Good}},
	} {
		groups, err := plotOf(t, name).groups(text.String())
		if err != nil || len(groups) != 5 || groups[4].Heading != "E" || !slices.Equal(groups[4].Values, want) {
			t.Errorf("%s: got %+v, %v", name, groups, err)
		}
	}
	if _, err := plotOf(t, "growth-processes").groups(text.String()); err == nil {
		t.Error("want an error without a table of idle clients")
	}
}
