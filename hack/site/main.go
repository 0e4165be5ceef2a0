// Command site writes the documentation as HTML pages with a search, for `make site`:
//
//	go run ./hack/site FOLDER
//
// It is run in the root of the repository. The pages need no server and name no other host, but for links to source
// files, which lead to the repository's code host.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: site FOLDER")
		os.Exit(2)
	}
	if err := build(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}
