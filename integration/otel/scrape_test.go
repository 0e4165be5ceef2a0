// Package otel checks what otellock exposes against Prometheus's own exporter and
// parser, and that the documentation's queries and names are about that.
package otel

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v3"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/otellock"
)

const docs = "../../docs/"

// scrape lets a holder, a waiter, a failure and a loss happen and returns what
// a Prometheus server would get then.
func scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewRegistry()
	e, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	waits, lost := make(chan struct{}), make(chan struct{})
	o, err := otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(e))),
		otellock.WithNameAttribute(func(name string) string { return name }))
	if err != nil {
		t.Fatal(err)
	}
	space := memlock.NewSpace()
	c, err := lock.New(space.Backend(), lock.WithObserver(o), lock.WithObserver(&lock.Observer{ // called after o
		Waiting: func(context.Context, lock.Event) { close(waits) },
		Lost:    func(context.Context, lock.Event) { close(lost) },
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	stranger, err := lock.New(space.Backend())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close(context.Background())

	if _, err := c.Mutex("k").TryLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Break(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	<-lost
	if _, err := c.Mutex("k").TryLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() { _, err := c.Mutex("k").Lock(ctx); waited <- err }()
	defer func() {
		cancel()
		if err := <-waited; err == nil {
			t.Error("granted twice")
		}
	}()
	<-waits

	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	answer, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func TestScrape(t *testing.T) {
	families := scrape(t)
	for name, want := range map[string]struct {
		kind  dto.MetricType
		value float64
	}{
		"interlock_lock_held":                   {dto.MetricType_GAUGE, 1},
		"interlock_lock_waiting":                {dto.MetricType_GAUGE, 1},
		"interlock_lock_lost_total":             {dto.MetricType_COUNTER, 1},
		"interlock_lock_renewal_failures_total": {dto.MetricType_COUNTER, 0},
		"interlock_lock_wait_duration_seconds":  {dto.MetricType_HISTOGRAM, 2},
		"interlock_lock_hold_duration_seconds":  {dto.MetricType_HISTOGRAM, 1},
	} {
		f := families[name]
		if f == nil || len(f.GetMetric()) != 1 || f.GetType() != want.kind || f.GetHelp() == "" {
			t.Errorf("%s: %v", name, f)
			continue
		}
		m := f.GetMetric()[0]
		value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		if value != want.value {
			t.Errorf("%s is %v, want %v", name, value, want.value)
		}
	}
}

var word = regexp.MustCompile(`\binterlock_[a-z_]+`)

// queries returns the queries of the alert rules and of the dashboard.
func queries(t *testing.T) []string {
	t.Helper()
	read := func(name string, decode func([]byte, any) error, into any) {
		b, err := os.ReadFile(docs + "observability/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := decode(b, into); err != nil {
			t.Fatal(name, err)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	read("alerts.yml", yaml.Unmarshal, &rules)
	var board struct {
		Templating struct{ List []struct{ Query string } }
		Panels     []struct{ Targets []struct{ Expr string } }
	}
	read("dashboard.json", json.Unmarshal, &board)
	var out []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			out = append(out, r.Expr)
		}
	}
	alerts := len(out)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			out = append(out, target.Expr)
		}
	}
	if alerts < 5 || len(out) < alerts+6 {
		t.Fatalf("%d alerts, %d queries in all", alerts, len(out))
	}
	for _, v := range board.Templating.List {
		out = append(out, v.Query)
	}
	return out
}

func TestQueriesAreAboutWhatIsExposed(t *testing.T) {
	exposed := map[string]bool{}
	families := scrape(t)
	for name, f := range families {
		exposed[name] = true
		if f.GetType() == dto.MetricType_HISTOGRAM {
			delete(exposed, name)
			exposed[name+"_bucket"], exposed[name+"_sum"], exposed[name+"_count"] = true, true, true
		}
		for _, l := range f.GetMetric()[0].GetLabel() {
			exposed[l.GetName()] = true
		}
	}
	asked := map[string]bool{}
	for _, q := range queries(t) {
		for _, w := range word.FindAllString(q, -1) {
			asked[w] = true
			if !exposed[w] {
				t.Errorf("not exposed: %s, in %s", w, q)
			}
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "interlock_") && !asked[name] && !asked[name+"_bucket"] {
			t.Errorf("no query looks at %s", name)
		}
	}
}

func TestPageListsWhatIsExposed(t *testing.T) {
	page, err := os.ReadFile(docs + "observability.md")
	if err != nil {
		t.Fatal(err)
	}
	families, listed := scrape(t), map[string]bool{}
	for _, w := range word.FindAllString(string(page), -1) {
		listed[w] = true
	}
	for name := range families {
		if strings.HasPrefix(name, "interlock_") && !listed[name] {
			t.Errorf("%s is not on the page", name)
		}
	}
	labels := map[string]bool{}
	for _, f := range families {
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels[l.GetName()] = true
		}
	}
	for w := range listed {
		if families[w] == nil && !labels[w] {
			t.Errorf("%s is on the page and not exposed", w)
		}
	}
}
