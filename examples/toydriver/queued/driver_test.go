package queued_test

import (
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/conformance/conformanceclock"
	"github.com/interlock-go/lock/conformance/conformancelink"
	"github.com/interlock-go/lock/examples/toydriver/queued"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // the suite runs this binary again as another process
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	server := httptest.NewServer(queued.NewServer())
	defer server.Close()
	worker := conformance.Self(strings.Replace(server.URL, "http://", "toyqueue://", 1))
	conformance.Run(t, conformance.Harness{
		Name: "toyqueue",
		Open: func(ctx context.Context) (backend.Backend, error) { return queued.New(ctx, server.URL) },
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			link, err := conformancelink.New(server.Listener.Addr().String())
			if err != nil {
				return nil, nil, err
			}
			t.Cleanup(link.Close)
			b, err := queued.New(ctx, "http://"+link.Addr())
			return b, link, err
		},
		Worker:      worker,
		ClockWorker: conformanceclock.Worker(worker),
		Budget:      conformance.Budget{DeadProcess: queue.ProvisionalTTL},
	})
}
