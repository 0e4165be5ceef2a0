// Service is a complete program that uses a lock: an HTTP service with metrics, health checks
// and a graceful shutdown. README.md describes it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/filelock" // each driver that LOCK_URL may name
	_ "github.com/interlock-go/lock/memcachelock"
	_ "github.com/interlock-go/lock/memlock"
	_ "github.com/interlock-go/lock/natslock"
	"github.com/interlock-go/lock/otellock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/s3lock"
)

// drainTimeout bounds the requests that are under way at a shutdown. The orchestrator must
// wait for longer before it kills the process.
const drainTimeout = 20 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("LOCK_URL"), os.Getenv("LISTEN"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", err) // errors of the library have no password
		os.Exit(1)
	}
}

// run serves until ctx ends and the requests that are under way have ended.
func run(ctx context.Context, lockURL, listen string) (err error) {
	registry := prometheus.NewRegistry()
	exp, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return err
	}
	observer, err := otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exp))))
	if err != nil {
		return err
	}
	// With WithLazyOpen the service starts while the lock service is down. A wrong URL fails here.
	locks, err := lock.Open(ctx, lockURL, lock.WithLazyOpen(), lock.WithObserver(observer))
	if err != nil {
		return err
	}
	defer func() { // after the last request: Close ends all leases
		closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, locks.Close(closing))
	}()

	mux := http.NewServeMux()
	(&shop{locks: locks}).register(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	slog.Info("listening", "addr", listener.Addr().String())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	slog.Info("shutting down")
	draining, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	return server.Shutdown(draining)
}
