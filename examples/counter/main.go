// Counter shows what a lock is for. Several processes increment a number that
// they keep in a file or in Redis, each by reading it, adding one and writing it
// back. Without a lock increments overwrite each other; with one none is lost.
//
//	go run ./examples/counter                                  # a file, a file lock
//	go run ./examples/counter -no-lock                         # updates are lost
//	go run ./examples/counter -url redis://localhost:6379/0    # the same on Redis
//	go run ./examples/counter -config counter.yaml             # on what the file says
//
// The lock's place is one line of the configuration, on any backend:
//
//	lock:
//	  url: etcd://localhost:2379
//	  ttl: 10s
//
// With mem://counter the processes are goroutines, which is what a lock in memory is for.
//
// With -oversell two buyers want 60 each of a stock of 100. Without a lock both
// may find the stock sufficient.
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
	_ "github.com/interlock-go/lock/memlock"
	_ "github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/pglock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/zklock"
)

// settings are what the processes of an experiment have in common.
type settings struct {
	Lock      lock.Config   // without a URL: none
	Store     string        // where the number is
	Processes int           // how many
	Each      int           // how many increments each makes
	Pause     time.Duration // between reading and writing
	Lockstep  bool          // nobody writes before all have read
	Oversell  bool          // sell instead of count
}

const (
	stock = 100 // before the sale
	order = 60  // of each of the two buyers
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

// run makes one experiment. It reports false if the lock failed to protect the number.
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
	if s.Lock.URL == "" {
		locks := filepath.Join(dir, "locks")
		if err := os.Mkdir(locks, 0o700); err != nil {
			return false, err
		}
		s.Lock.URL = "file://" + filepath.ToSlash(locks)
	}
	if s.Store == "" {
		if s.Store = s.Lock.URL; !isRedis(s.Store) {
			s.Store = filepath.Join(dir, "number")
		}
	}
	if noLock {
		s.Lock.URL = ""
	}
	workers := "processes"
	if s.inProcess() {
		workers = "goroutines"
	}

	begin := 0
	if s.Oversell {
		begin = stock
		s.Processes, s.Each = 2, 1
	}
	number, err := openStore(s.Store)
	if err != nil {
		return false, err
	}
	defer number.Close()
	if err := number.Write(ctx, begin); err != nil {
		return false, err
	}
	began := time.Now()
	done, err := processes(ctx, s)
	if err != nil {
		return false, err
	}
	took := time.Since(began).Round(time.Millisecond)
	end, err := number.Read(ctx)
	if err != nil {
		return false, err
	}

	how := "with a lock"
	if noLock {
		how = "without a lock"
	}
	lost := done - end
	if s.Oversell {
		sold := done * order
		lost = sold - (stock - end)
		fmt.Fprintf(out, "%s: %d buyers wanted %d each of %d; sold %d, the stock says %d\n", how, s.Processes, order, stock, sold, end)
		if sold > stock {
			fmt.Fprintf(out, "oversold by %d\n", sold-stock)
		}
		return noLock || lost == 0 && sold <= stock, nil
	}
	fmt.Fprintf(out, "%s: %d %s made %d increments in %v, the number is %d: %d lost\n", how, s.Processes, workers, done, took, end, lost)
	return noLock || lost == 0, nil
}

func parse(args []string, out io.Writer) (s settings, noLock bool, err error) {
	f := flag.NewFlagSet("counter", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&s.Lock.URL, "url", "", "where the lock is kept (default a file lock in a temporary folder)")
	config := f.String("config", "", "a YAML file whose lock section says where the lock is kept, and how")
	f.StringVar(&s.Store, "store", "", "where the number is kept: a path or a redis:// URL (default beside a lock in Redis, else a temporary file)")
	f.BoolVar(&noLock, "no-lock", false, "do without a lock")
	f.IntVar(&s.Processes, "processes", 10, "how many processes")
	f.IntVar(&s.Each, "each", 100, "how many increments each process makes")
	f.DurationVar(&s.Pause, "pause", time.Millisecond, "between reading the number and writing it")
	f.BoolVar(&s.Lockstep, "lockstep", false, "with -no-lock: nobody writes before all have read, which is the worst case")
	f.BoolVar(&s.Oversell, "oversell", false, fmt.Sprintf("sell a stock of %d to two buyers of %d", stock, order))
	if err := f.Parse(args); err != nil {
		return s, noLock, err
	}
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case *config != "" && s.Lock.URL != "":
		err = errors.New("-config and -url both say where the lock is kept: want one")
	case s.Processes < 1:
		err = fmt.Errorf("-processes %d: want at least 1", s.Processes)
	case s.Each < 1:
		err = fmt.Errorf("-each %d: want at least 1", s.Each)
	case s.Pause < 0:
		err = fmt.Errorf("-pause %v: want 0 or more", s.Pause)
	case s.Lockstep && !noLock:
		err = errors.New("-lockstep would wait for ever with a lock: want -no-lock with it")
	}
	if err == nil && *config != "" {
		s.Lock, err = readConfig(*config)
	}
	return s, noLock, err
}

// readConfig reads the lock section of a file.
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
