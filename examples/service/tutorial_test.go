package main

import (
	"net/http"
	"os"
	"regexp"
	"testing"
)

// The service answers the requests of the tutorial.
func TestTutorial(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tutorial.md")
	if os.IsNotExist(err) {
		t.Skip("the module stands alone, without the documentation")
	} else if err != nil {
		t.Fatal(err)
	}
	requests := regexp.MustCompile(`(?m)^    curl (?:-X (\w+) )?localhost:8080(/\S+)$`).FindAllStringSubmatch(string(page), -1)
	if len(requests) != 3 {
		t.Fatalf("want three requests, got %q", requests)
	}
	p := start(t, "mem:")
	for _, r := range requests {
		method := r[1]
		if method == "" {
			method = http.MethodGet
		}
		p.want(method, r[2], http.StatusOK, "")
	}
	p.terminate()
	p.wantExit()
}
