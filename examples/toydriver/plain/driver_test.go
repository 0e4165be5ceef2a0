package plain_test

import (
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/conformance/conformanceclock"
	"github.com/interlock-go/lock/conformance/conformancelink"
	"github.com/interlock-go/lock/examples/toydriver/plain"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // the suite runs this binary again as another process
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	server := httptest.NewServer(plain.NewServer())
	defer server.Close()
	worker := conformance.Self(strings.Replace(server.URL, "http://", "toy://", 1))
	conformance.Run(t, conformance.Harness{
		Name: "toy",
		Open: func(context.Context) (backend.Backend, error) { return plain.New(server.URL), nil },
		OpenFaulty: func(context.Context) (backend.Backend, conformance.Link, error) {
			link, err := conformancelink.New(server.Listener.Addr().String())
			if err != nil {
				return nil, nil, err
			}
			t.Cleanup(link.Close)
			return plain.New("http://" + link.Addr()), link, nil
		},
		Worker:      worker,
		ClockWorker: conformanceclock.Worker(worker),
	})
}
