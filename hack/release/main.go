// Command release makes the commit and the tags of a version of all published modules.
//
//	go run ./hack/release v0.1.0
//	go run ./hack/release api
//
// With the argument api it only compares the API with that of the last release.
//
// It needs a clean work tree, and the stamp that a green make test leaves for that tree; SKIP_TESTS=1 does without the
// stamp, for a rehearsal in a clone. It makes two commits: the release, with its tags, in which each module requires the
// others at the new version and the commands have no replace and exclude lines (go install refuses them), and one that
// restores these lines for the work that follows. It pushes nothing: it prints the command that does.
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "release: want one argument, the version, as in v0.1.0, or api")
		os.Exit(2)
	}
	if os.Args[1] == "api" {
		if err := reportAPI(); err != nil {
			fmt.Fprintln(os.Stderr, "release:", err)
			os.Exit(1)
		}
		return
	}
	r := release{version: os.Args[1], date: time.Now().UTC(), skipTests: os.Getenv("SKIP_TESTS") == "1"}
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
