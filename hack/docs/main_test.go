// Package docs_test tests the documents: that their links, names, code and commands are right, and their form and language.
package docs_test

import (
	"path/filepath"
	"testing"
)

var root, _ = filepath.Abs("../..")

// atRoot makes the root of the repository the working directory of a test. (TestMain could not: a test would be taken from
// the cache although a document has changed, since what comes before the tests is not noted there.)
func atRoot(t *testing.T) {
	t.Helper()
	t.Chdir(root)
}
