// Package suite holds what the runs of the conformance suite against the different
// servers have in common.
package suite

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
)

// Open opens a backend as an application does, by URL.
func Open(ctx context.Context, rawURL string) (backend.Backend, error) {
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return backend.Open(ctx, u)
}

// WithParams adds parameters to a URL that has none.
func WithParams(rawURL string, params map[string]string) string {
	q := url.Values{}
	for k, v := range params {
		q.Set(k, v)
	}
	return rawURL + "?" + q.Encode()
}

// OwnGoroutines are those of servers, which come and go with connections. The suite knows those of its link.
var OwnGoroutines = []string{"/integration/provision."}

// Link is a proxy as the suite knows it.
type Link struct {
	T testing.TB
	*provision.Proxy
}

// Heal ends every fault.
func (l Link) Heal() {
	if err := l.Proxy.Heal(); err != nil {
		l.T.Errorf("heal the proxy: %v", err)
	}
}

// Failover returns a hook that kills the node that leads, waits until another one leads, and starts the first again.
func Failover(nodes []*provision.Server, leader func(context.Context) (int, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		old, err := leader(ctx)
		if err != nil {
			return err
		}
		if err := nodes[old].Kill(); err != nil {
			return err
		}
		for now := old; now == old; {
			if now, err = leader(ctx); err != nil {
				return err
			}
		}
		return nodes[old].Restart(ctx)
	}
}

// Crowd is the options for conformance.Run by which the case of ten thousand readers runs, and no other.
func Crowd() []conformance.Option {
	return []conformance.Option{conformance.Full(), conformance.Only("^shared/43-ten-thousand-readers$")}
}

// HandOff is the options for conformance.Run by which clients have local hand-off, and
// those cases run that it could change.
func HandOff() []conformance.Option {
	return []conformance.Option{
		conformance.Clients(lock.WithLocalHandOff()),
		conformance.Only("^(exclusion|cancellation/1[56]|release|fencing/3[12]|loss|ambiguity/34)"),
	}
}

// Variable names the environment variable that holds the folder for reports. If
// it is not set none are kept.
const Variable = "LOCK_TEST_REPORTS"

var odd = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)

// Keep is an option for conformance.Run that writes the report to the folder, for
// docs/matrix.md.
func Keep(t *testing.T) conformance.Option {
	return conformance.OnReport(func(r *conformance.Report) {
		dir := os.Getenv(Variable)
		if dir == "" {
			return
		}
		content, err := r.JSON()
		if err == nil {
			err = os.MkdirAll(dir, 0o750)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, odd.ReplaceAllString(r.Name, "_")+".json"), content, 0o600)
		}
		if err != nil {
			t.Errorf("keep the report: %v", err)
		}
	})
}

// LeaseEnded reports whether a raw grant was lost because its lease has ended. A grant that was handed over has three
// seconds until its first renewal, which is too short for some tests on a slow machine.
func LeaseEnded(g backend.Grant, err error) bool {
	return errors.Is(err, backend.ErrLost) && !time.Now().Before(g.Until())
}

// FreeRecord reports whether the record of package record is that of a lock which no process holds and for which none
// waits.
func FreeRecord(text string) bool {
	return strings.Contains(text, `"held":false`) && !strings.Contains(text, `"waiting"`)
}
