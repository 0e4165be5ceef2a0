// Counter shows what a lock is for. Several processes increment a number in a file or in
// Redis: each reads it, adds one and writes it back. Without a lock increments overwrite
// each other; with a lock none is lost.
//
//	go run ./examples/counter                                  # a file, a file lock
//	go run ./examples/counter -no-lock                         # updates are lost
//	go run ./examples/counter -url redis://localhost:6379/0    # the same on Redis
//	go run ./examples/counter -config counter.yaml             # the lock that the file configures
//
// The URL in the configuration selects the backend of the lock:
//
//	lock:
//	  url: etcd://localhost:2379
//	  ttl: 10s
//
// With mem://counter the workers are goroutines of one process.
//
// With -oversell two buyers want 60 each of a stock of 100. Without a lock the stock may
// seem sufficient to both.
//
//	go run ./examples/counter -oversell -no-lock -lockstep
package main

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

	"go.yaml.in/yaml/v3"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/etcdlock"
	_ "github.com/interlock-go/lock/filelock"
	_ "github.com/interlock-go/lock/memcachelock"
	_ "github.com/interlock-go/lock/memlock"
	_ "github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/natslock"
	_ "github.com/interlock-go/lock/pglock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/redislock/redlock"
	_ "github.com/interlock-go/lock/s3lock"
	_ "github.com/interlock-go/lock/zklock"
)

// settings are common to the processes of an experiment.
type settings struct {
	Lock      lock.Config // no lock if its URL is empty
	Store     string      // path or URL of the number
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

func main() {
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
	number, err := openStore(s.Store)
	if err != nil {
		return false, err
	}
	defer number.Close()
	begin := 0
	if s.Oversell {
		begin = stock
	}
	if err := number.Write(ctx, begin); err != nil {
		return false, err
	}
	start := time.Now()
	done, err := processes(ctx, s)
	if err != nil {
		return false, err
	}
	took := time.Since(start).Round(time.Millisecond)
	end, err := number.Read(ctx)
	if err != nil {
		return false, err
	}
	return s.report(out, done, end, took) || noLock, nil
}

// setDefaults completes the settings. Locks and number are in dir unless there is a URL.
func (s *settings) setDefaults(dir string) error {
	if s.Lock.URL == "" {
		locks := filepath.Join(dir, "locks")
		if err := os.Mkdir(locks, 0o700); err != nil {
			return err
		}
		s.Lock.URL = "file://" + filepath.ToSlash(locks)
	}
	if s.Store == "" {
		if s.Store = s.Lock.URL; !isRedis(s.Store) {
			s.Store = filepath.Join(dir, "number")
		}
	}
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
	config := f.String("config", "", "a YAML file with a section lock: its URL and options")
	f.StringVar(&s.Store, "store", "", "path or redis:// URL of the number (default the Redis of the lock, otherwise a temporary file)")
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

// readConfig reads the section lock of a YAML file.
func readConfig(name string) (lock.Config, error) {
	var file struct{ Lock lock.Config }
	text, err := os.ReadFile(name)
	if err == nil {
		if err = yaml.Unmarshal(text, &file); err == nil && file.Lock.URL == "" {
			err = errors.New("want a section lock with a url")
		}
	}
	if err != nil {
		return lock.Config{}, fmt.Errorf("-config %s: %w", name, err)
	}
	return file.Lock, nil
}
