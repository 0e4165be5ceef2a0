package docs_test

import (
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
	for path, content := range sources(t, ".go", ".md", ".lua", ".sql", ".sh", ".yml", ".yaml", "Makefile") {
		if path == "hack/docs/vocabulary_test.go" {
			continue
		}
		for i, line := range strings.Split(content, "\n") {
			if word := replaced(line); word != "" {
				t.Errorf("%s:%d: %q: docs/glossary.md has another word for it: %.150s", path, i+1, word, strings.TrimSpace(line))
			}
		}
	}
}
