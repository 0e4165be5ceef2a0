// Command runtests runs the tests of a tier; CONTRIBUTING.md says what each tier is for.
//
//	go run ./hack/runtests check                  what a change touches, without servers
//	go run ./hack/runtests test                   every backend in its current version
//	go run ./hack/runtests all [BACKEND...]       every version and topology, of all backends or of those
//	go run ./hack/runtests touched -minutes N     tier all of the backends that a change touches, as far as it fits
//
// A change is what differs between the work tree and the commit that the variable BASE names. The output has a line when
// a package begins and ends, the output of failed tests, the slowest tests, and what did not run. The complete output is
// in .bin/tests.txt. The exit code is 1 if a test failed or did not build.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
)

func main() {
	// An interrupt reaches go test and its tests too; this process reports what they print last. It does not ignore the
	// signal, since its children would inherit that.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("want a tier: check, test, all or touched")
	}
	tier, args := args[0], args[1:]
	if tier == "turn" && len(args) > 1 { // see turns
		return turn(args[0], args[1:]...)
	}
	flags := flag.NewFlagSet(tier, flag.ExitOnError)
	minutes := flags.Int("minutes", 25, "touched: how long all runs may take together")
	_ = flags.Parse(args) // exits
	switch tier {
	case "check":
		return check()
	case "test":
		return current()
	case "all":
		return all(flags.Args())
	case "touched":
		return touched(*minutes)
	}
	return fmt.Errorf("tier %q: want check, test, all or touched", tier)
}

// command runs a program with the output of this one.
func command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, firstOf(args), err)
	}
	return nil
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func say(format string, args ...any) { fmt.Printf("== "+format+"\n", args...) }
