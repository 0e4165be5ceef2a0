package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/interlock-go/lock/conformance"
)

var update = flag.Bool("update", false, "write docs/contract.md")

// TestContractDocument keeps docs/contract.md the same as the cases.
func TestContractDocument(t *testing.T) {
	const file = "../docs/contract.md"
	var b strings.Builder
	b.WriteString(`# The contract

What a backend owes to those who hold, wait for and release locks, sentence by sentence, each with the case of the
conformance suite that checks it, and what the case needs of a driver or of its test harness. The words of the interface
itself are in the package documentation of ` + "`backend`" + `; which test notices when a safety step of a driver is taken away,
in [safety-steps.md](safety-steps.md).

Generated from the cases: ` + "`go test ./conformance -run ContractDocument -update`" + `.

Most clauses about time follow from the life of a lease:

![Timeline of a lease that is not renewed. The client counts the TTL from before it sends the request. It trusts the
lease from the reply until the TTL minus a margin. Then the context of the lease ends. The service keeps the lease
until later, so that no other client can be granted the lock while the first one trusts it.](images/lease.svg)
`)
	section := ""
	for _, c := range conformance.Cases() {
		if s, _, _ := strings.Cut(c.ID, "/"); s != section {
			section = s
			fmt.Fprintf(&b, "\n## %s%s\n\n| case | clause | shown by | needs |\n|---|---|---|---|\n", strings.ToUpper(s[:1]), s[1:])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.ID, c.Clause, c.Title, strings.Join(c.Needs, ", "))
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(committed) != b.String() {
		t.Errorf("%s is not what the cases say; run with -update", file)
	}
}
