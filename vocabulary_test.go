package lock_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// replacedWords are words for which docs/glossary.md has a term of the field.
var replacedWords = strings.Fields(`
	told untold tell tells telling hear hears heard mend mends mended mending anew sulk sulks frugal patience deaf
	bell bells anchor anchors loan loans lend lends lent ballot ballots mute muted desert deserts shall
	whoever nobody somebody`)

var replacedPhrases = []string{"stands in", "stand in", "stood in", "each third", "in vain"}

// replaced returns the first replaced word of a line, "" if there is none. A part of an
// identifier such as http.NoBody is no word.
func replaced(line string) string {
	line = strings.ReplaceAll(line, "text-anchor", "") // an attribute of SVG
	for _, word := range strings.FieldsFunc(line, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }) {
		lower := strings.ToLower(word[:1]) + word[1:]
		if slices.Contains(replacedWords, lower) {
			return word
		}
	}
	for _, phrase := range replacedPhrases {
		if strings.Contains(line, phrase) {
			return phrase
		}
	}
	return ""
}

func TestDocVocabulary(t *testing.T) {
	suffixes := []string{".go", ".md", ".lua", ".sql", ".sh", ".yml", ".yaml", "Makefile"}
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == ".git" || name == ".bin" {
				return fs.SkipDir
			}
			return nil
		}
		if path == "vocabulary_test.go" || !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for i, line := range strings.Split(string(content), "\n") {
			if word := replaced(line); word != "" {
				t.Errorf("%s:%d: %q: docs/glossary.md has another word for it: %.150s", path, i+1, word, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 5 {
		t.Errorf("want the files of the tree, found %d", files)
	}
}
