package provision

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
)

// Main runs the tests, ends the servers they shared, prints which servers were tested, and exits.
//
//	func TestMain(m *testing.M) { provision.Main(m) }
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is [Main] for a TestMain that has more to do: it returns the exit code.
func Run(m *testing.M) int {
	inMain.Store(true)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // tests lose leases on purpose, and a client logs that
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		if sig, ok := <-interrupted; ok {
			fmt.Fprintf(os.Stderr, "provision: %v: ending the servers\n", sig)
			_ = removeAll()
			os.Exit(1)
		}
	}()
	code := m.Run()
	signal.Stop(interrupted)
	close(interrupted)
	for _, f := range endings {
		if err := f(); err != nil {
			fmt.Fprintf(os.Stderr, "provision: %v\n", err)
		}
	}
	if err := removeAll(); err != nil {
		fmt.Fprintf(os.Stderr, "provision: ending the servers: %v\n", err)
		code = max(code, 1)
	}
	report()
	return code
}

var inMain atomic.Bool

// endings run when the tests are over.
var endings []func() error

func atExit(f func() error) { endings = append(endings, f) }

// live are the servers not yet removed, so that an interrupt can end those of running tests too.
var live struct {
	sync.Mutex
	servers []*Server
}

func register(s *Server) {
	live.Lock()
	defer live.Unlock()
	live.servers = append(live.servers, s)
}

func unregister(s *Server) {
	live.Lock()
	defer live.Unlock()
	live.servers = slices.DeleteFunc(live.servers, func(other *Server) bool { return other == s })
}

func removeAll() error {
	live.Lock()
	servers := slices.Clone(live.servers)
	live.Unlock()
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.remove())
	}
	return errors.Join(errs...)
}

// tested are the rows of the table, in the order of their first use.
var tested struct {
	sync.Mutex
	rows [][3]string
}

func record(flavour, version, source string) {
	tested.Lock()
	defer tested.Unlock()
	if row := [3]string{flavour, version, source}; !slices.Contains(tested.rows, row) {
		tested.rows = append(tested.rows, row)
	}
}

func report() {
	tested.Lock()
	defer tested.Unlock()
	if len(tested.rows) == 0 {
		return
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVER\tVERSION\tSOURCE")
	for _, row := range tested.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", row[0], row[1], row[2])
	}
	_ = w.Flush()
	fmt.Fprint(os.Stderr, b.String())
	name := os.Getenv("LOCK_TEST_REPORT")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(b.String())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "provision: LOCK_TEST_REPORT: %v\n", err)
	}
}
