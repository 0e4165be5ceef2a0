package docs_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// runbook is a link of an alert or a panel to a heading of a page.
var runbook = regexp.MustCompile(`^https://github\.com/interlock-go/lock/blob/main/(docs/[a-z/]+\.md)#([a-z0-9-]+)$`)

// Each alert has a heading of its own on the page, and each link of an alert or a panel leads
// to a heading that exists.
func TestRunbooks(t *testing.T) {
	all := pages(t)
	check := func(of, url string) (heading string) {
		t.Helper()
		m := runbook.FindStringSubmatch(url)
		if m == nil || !targets(all[m[1]])["#"+m[2]] {
			t.Errorf("%s: want a link to a heading of a page, got %q", of, url)
			return ""
		}
		return m[2]
	}
	rules, err := os.ReadFile("docs/observability/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := strings.Split(string(rules), "- alert: ")[1:]
	if len(alerts) < 5 {
		t.Errorf("only %d alerts were found", len(alerts))
	}
	for _, a := range alerts {
		name, _, _ := strings.Cut(a, "\n")
		url := regexp.MustCompile(`description: '.{20,}'\n *runbook_url: '(.*)'`).FindStringSubmatch(a)
		if url == nil || check(name, url[1]) != strings.ToLower(name) {
			t.Errorf("%s: want a description and a runbook of its own, got %q", name, url)
		}
	}
	text, err := os.ReadFile("docs/observability/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title, Description string
			Links              []struct{ URL string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || len(board.Panels) < 6 {
		t.Fatalf("%d panels, %v", len(board.Panels), err)
	}
	for _, p := range board.Panels {
		if p.Description == "" || len(p.Links) != 1 {
			t.Errorf("panel %s: want a description and a link, got %q and %v", p.Title, p.Description, p.Links)
			continue
		}
		check("panel "+p.Title, p.Links[0].URL)
	}
}
