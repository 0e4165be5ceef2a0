package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
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

// Pages have lines, tables and paragraphs of a length that people read.
func TestDocForm(t *testing.T) {
	for path, text := range pages(t) {
		for _, p := range formProblems(text) {
			t.Errorf("%s:%s", path, p)
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

// translations returns the Chinese pages and, for each, the English one.
func translations(t *testing.T) map[string]string {
	found := map[string]string{"README.zh-CN.md": "README.md"}
	for path := range pages(t) {
		if name, ok := strings.CutPrefix(path, "docs/zh/"); ok {
			found[path] = "docs/" + name
		}
	}
	return found
}

// Both languages have the same sections, code, tables and links, in the same order of sections.
func TestDocLanguagesAgree(t *testing.T) {
	english := translations(t)
	if len(english) < 14 {
		t.Errorf("only %d Chinese pages were found", len(english))
	}
	sections := func(path string) (out [][]string) {
		text := pages(t)[path]
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
				facts = append(facts, fmt.Sprintf("%d lines of code", strings.Count(m[2], "\n")))
				if path == "README.md" || path == "README.zh-CN.md" {
					facts = append(facts, "code "+comment.ReplaceAllString(m[2], ""))
				}
			}
			for _, m := range link.FindAllStringSubmatch(section, -1) {
				facts = append(facts, "link "+englishTarget(path, m[1], english))
			}
			facts = append(facts, fmt.Sprintf("%d lines of tables", strings.Count(section, "\n|")))
			slices.Sort(facts)
			out = append(out, facts)
		}
		return out
	}
	for path, original := range english {
		if pages(t)[original] == "" {
			t.Errorf("%s is a translation of %s, which does not exist", path, original)
			continue
		}
		want, got := sections(original), sections(path)
		if len(want) != len(got) {
			t.Errorf("%s has %d sections, %s %d", original, len(want), path, len(got))
			continue
		}
		for i := range want {
			if !slices.Equal(want[i], got[i]) {
				t.Errorf("section %d differs:\n%s: %q\n%s: %q", i+1, original, want[i], path, got[i])
			}
		}
	}
}

// englishTarget returns where a link leads, as the path of the English page.
func englishTarget(from, target string, english map[string]string) string {
	if strings.Contains(target, "://") {
		return target
	}
	file, fragment, toHeading := strings.Cut(target, "#")
	if file == "" {
		file = filepath.Base(from)
	}
	file = filepath.ToSlash(filepath.Join(filepath.Dir(from), file))
	if e, ok := english[file]; ok {
		return fmt.Sprintf("%s with a fragment: %t", e, toHeading) // headings differ
	}
	for _, e := range english {
		if file == e {
			return fmt.Sprintf("%s with a fragment: %t", e, toHeading)
		}
	}
	return file + "#" + fragment
}

// The badge has the Go release of go.mod.
func TestDocBadges(t *testing.T) {
	atRoot(t)
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
