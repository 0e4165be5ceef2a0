// Package app is the program examples/counter without the drivers of the backends.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/interlock-go/lock"
)

// settings are common to the processes of an experiment.
type settings struct {
	Lock      lock.Config // no lock if its URL is empty
	Number    string      // path of its file
	Processes int
	Each      int           // increments of each process
	Pause     time.Duration // between reading and writing
	Lockstep  bool          // no process writes before all have read
	Oversell  bool          // sell instead of count
}

const (
	stock = 100 // before the sale
	order = 60  // of each buyer
)

// Main is the program.
func Main() {
	ctx := context.Background()
	if text := os.Getenv(workerVariable); text != "" {
		var s settings
		err := json.Unmarshal([]byte(text), &s)
		if err == nil {
			err = work(ctx, s, os.Stdin, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "counter:", err)
			os.Exit(1)
		}
		return
	}
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "counter:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

// run makes one experiment. It returns false if the lock did not protect the number.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	s, noLock, err := parse(args, out)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "counter-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if err := s.setDefaults(dir); err != nil {
		return false, err
	}
	if noLock {
		s.Lock.URL = ""
	}
	number := numberFile(s.Number)
	begin := 0
	if s.Oversell {
		begin = stock
	}
	if err := number.write(begin); err != nil {
		return false, err
	}
	start := time.Now()
	done, err := processes(ctx, s)
	if err != nil {
		return false, err
	}
	took := time.Since(start).Round(time.Millisecond)
	end, err := number.read()
	if err != nil {
		return false, err
	}
	return s.report(out, done, end, took) || noLock, nil
}

// setDefaults completes the settings. The number is in dir, and so are the locks unless there is a URL.
func (s *settings) setDefaults(dir string) error {
	if s.Lock.URL == "" {
		locks := filepath.Join(dir, "locks")
		if err := os.Mkdir(locks, 0o700); err != nil {
			return err
		}
		s.Lock.URL = "file://" + filepath.ToSlash(locks)
	}
	s.Number = filepath.Join(dir, "number")
	if s.Oversell {
		s.Processes, s.Each = 2, 1
	}
	return nil
}

// report prints the result and returns whether no update was lost. done is the number of
// updates, end the number after them.
func (s settings) report(out io.Writer, done, end int, took time.Duration) bool {
	how := "with a lock"
	if s.Lock.URL == "" {
		how = "without a lock"
	}
	if s.Oversell {
		sold := done * order
		fmt.Fprintf(out, "%s: %d buyers wanted %d each of %d; sold %d, the stock says %d\n", how, s.Processes, order, stock, sold, end)
		if sold > stock {
			fmt.Fprintf(out, "oversold by %d\n", sold-stock)
		}
		return sold <= stock && sold == stock-end
	}
	workers := "processes"
	if s.inProcess() {
		workers = "goroutines"
	}
	fmt.Fprintf(out, "%s: %d %s made %d increments in %v, the number is %d: %d lost\n", how, s.Processes, workers, done, took, end, done-end)
	return done == end
}

func parse(args []string, out io.Writer) (s settings, noLock bool, err error) {
	f := flag.NewFlagSet("counter", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&s.Lock.URL, "url", "", "URL of the lock (default a file lock in a temporary folder)")
	config := f.String("config", "", "a JSON file with a lock.Config: the URL of the lock and its options")
	f.BoolVar(&noLock, "no-lock", false, "use no lock")
	f.IntVar(&s.Processes, "processes", 10, "number of processes")
	f.IntVar(&s.Each, "each", 100, "increments of each process")
	f.DurationVar(&s.Pause, "pause", time.Millisecond, "pause between reading the number and writing it")
	f.BoolVar(&s.Lockstep, "lockstep", false, "with -no-lock: no process writes before all have read, which is the worst case")
	f.BoolVar(&s.Oversell, "oversell", false, fmt.Sprintf("sell a stock of %d to two buyers of %d", stock, order))
	if err := f.Parse(args); err != nil {
		return s, noLock, err
	}
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case *config != "" && s.Lock.URL != "":
		err = errors.New("-config and -url both have the URL of the lock: want one")
	case s.Processes < 1:
		err = fmt.Errorf("-processes %d: want at least 1", s.Processes)
	case s.Each < 1:
		err = fmt.Errorf("-each %d: want at least 1", s.Each)
	case s.Pause < 0:
		err = fmt.Errorf("-pause %v: want 0 or more", s.Pause)
	case s.Lockstep && !noLock:
		err = errors.New("-lockstep with a lock would deadlock: want -no-lock, too")
	}
	if err == nil && *config != "" {
		s.Lock, err = readConfig(*config)
	}
	return s, noLock, err
}

// readConfig reads the configuration of the lock.
func readConfig(name string) (c lock.Config, err error) {
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && c.URL == "" {
		err = errors.New("want a url")
	}
	if err != nil {
		return c, fmt.Errorf("-config %s: %w", name, err)
	}
	return c, nil
}
