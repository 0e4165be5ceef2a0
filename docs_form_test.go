package lock_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxColumns   = 6   // of a table
	maxWidth     = 120 // of a line that is not of a table or of a block of code
	maxParagraph = 6   // lines
)

// longPages have lines, tables or paragraphs that are too long still. Remove a page from
// the list when it is rewritten; no page may be added.
var longPages = []string{"docs/faults.md", "docs/matrix.md", "docs/performance.md"}

// Pages have lines, tables and paragraphs of a length that people read.
func TestDocForm(t *testing.T) {
	all := pages(t)
	for path, text := range all {
		problems := formProblems(text)
		switch listed := slices.Contains(longPages, path); {
		case listed && len(problems) == 0:
			t.Errorf("%s is in order: remove it from longPages", path)
		case !listed:
			for _, p := range problems {
				t.Errorf("%s:%s", path, p)
			}
		}
	}
	for _, path := range longPages {
		if all[path] == "" {
			t.Errorf("longPages names %s, which does not exist", path)
		}
	}
}

// formProblems returns what is too long in a page, each with the number of its line.
func formProblems(text string) (problems []string) {
	inCode, inPicture := false, false
	paragraph := 0
	for i, line := range strings.Split(text, "\n") {
		report := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%d: ", i+1)+fmt.Sprintf(format, args...))
		}
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			inCode = !inCode
			paragraph = 0
			continue
		}
		if inCode {
			continue
		}
		inPicture = inPicture || strings.HasPrefix(trimmed, "![")
		begins := listItem.MatchString(line)
		switch {
		case strings.HasPrefix(trimmed, "|"):
			cells := strings.ReplaceAll(code.ReplaceAllString(trimmed, ""), `\|`, "")
			if n := strings.Count(cells, "|") - 1; n > maxColumns {
				report("a table of %d columns, want at most %d", n, maxColumns)
			}
			paragraph = 0
			continue
		case trimmed == "", strings.HasPrefix(trimmed, "#"), inPicture, strings.HasPrefix(line, "    ") && paragraph == 0:
			paragraph = 0
		case begins:
			paragraph = 1
		default:
			paragraph++
		}
		if inPicture && strings.HasSuffix(trimmed, ")") {
			inPicture = false
		}
		if paragraph == maxParagraph+1 {
			report("a paragraph of more than %d lines", maxParagraph)
		}
		if w := columnsOf(line); w > maxWidth {
			report("a line of %d characters, want at most %d", w, maxWidth)
		}
	}
	return problems
}

var listItem = regexp.MustCompile(`^\s*([-*]|\d+\.) `)

// columnsOf returns the width of a line in columns, of which a Chinese character has two.
func columnsOf(line string) (n int) {
	for _, r := range line {
		n++
		if r >= 0x2e80 {
			n++
		}
	}
	return n
}

func TestDocFormFinds(t *testing.T) {
	long := strings.Repeat("x", maxWidth+1)
	sentence := "one line of a paragraph\n"
	for name, tt := range map[string]struct {
		page string
		want int
	}{
		"a good page":                {"# Page\n\n" + strings.Repeat(sentence, maxParagraph) + "\n| a | b |\n|---|---|\n| " + long + " | |\n", 0},
		"a long line":                {long + "\n", 1},
		"a long line of Chinese":     {strings.Repeat("锁", maxWidth/2+1) + "\n", 1},
		"code":                       {"```\n" + long + "\n```\n", 0},
		"a wide table":               {"| 1 | 2 | 3 | 4 | 5 | 6 | 7 |\n", 1},
		"bars within cells":          {"| 1 | 2 | 3 | 4 | 5 | `a | b` \\| c |\n", 0},
		"a long paragraph":           {strings.Repeat(sentence, maxParagraph+3), 1},
		"a long list of short items": {strings.Repeat("- "+sentence, maxParagraph+3), 0},
		"a long item":                {"- " + strings.Repeat(sentence+"  ", maxParagraph+3), 1},
		"a picture":                  {strings.Repeat(sentence, 4) + "\n![" + strings.Repeat(sentence, 8) + "](x.svg)\n" + sentence, 0},
	} {
		if got := formProblems(tt.page); len(got) != tt.want {
			t.Errorf("%s: got %q, want %d", name, got, tt.want)
		}
	}
}

var (
	anyHeading = regexp.MustCompile(`(?m)^(#+) `)
	anyFence   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```")
	comment    = regexp.MustCompile(`(?m)\s*//.*$`)
	badgeOfGo  = regexp.MustCompile(`badge/Go-([0-9.]+)%2B-`)
)

// The READMEs have the same sections, code and links, in the same order of sections.
func TestDocReadmesAgree(t *testing.T) {
	sections := func(path string) (out [][]string) {
		text := pages(t)[path]
		text = strings.NewReplacer("(README.md)", "()", "(README.zh-CN.md)", "()").Replace(text)
		hidden := fence.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat(" ", len(s)) })
		at := anyHeading.FindAllStringIndex(hidden, -1)
		for i, b := range at {
			end := len(text)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			section := text[b[0]:end]
			facts := []string{"heading " + section[:b[1]-b[0]]}
			for _, m := range anyFence.FindAllStringSubmatch(section, -1) {
				facts = append(facts, "code "+comment.ReplaceAllString(m[2], ""))
			}
			for _, m := range link.FindAllStringSubmatch(section, -1) {
				facts = append(facts, "link "+m[1])
			}
			facts = append(facts, fmt.Sprintf("%d lines of tables", strings.Count(section, "\n|")))
			slices.Sort(facts)
			out = append(out, facts)
		}
		return out
	}
	english, chinese := sections("README.md"), sections("README.zh-CN.md")
	if len(english) != len(chinese) || len(english) < 10 {
		t.Fatalf("README.md has %d sections, README.zh-CN.md %d", len(english), len(chinese))
	}
	for i := range english {
		if !slices.Equal(english[i], chinese[i]) {
			t.Errorf("section %d differs:\nREADME.md:       %q\nREADME.zh-CN.md: %q", i+1, english[i], chinese[i])
		}
	}
}

// The badge has the Go release of go.mod.
func TestDocBadges(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"README.md", "README.zh-CN.md"} {
		m := badgeOfGo.FindStringSubmatch(pages(t)[path])
		if m == nil || !strings.Contains(string(mod), "\ngo "+m[1]+".0\n") {
			t.Errorf("%s: the badge has the release %q, go.mod another one", path, m)
		}
	}
}
