package lockcmd

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// Program is a command line program. The zero value is lockctl without drivers.
type Program struct {
	Name    string // of the binary, also in messages and help; default "lockctl"
	Short   string // one line of help; default that of lockctl
	Long    string // purpose of the program, before the help on URLs; default that of lockctl
	Example string // default that of lockctl

	// Commands returns the commands of the program, except those that every program
	// has: man, version, help and completion. The default is App.LockCommands.
	Commands func(*App) []*Command

	// Schemas are the lock tables of the drivers, by URL scheme. Without Schemas the
	// program has no command schema.
	Schemas map[string]Schema

	// SetLogger is called before a command runs, for drivers whose client library has
	// a logger of its own. log is nil without --verbose. SetLogger may be nil.
	SetLogger func(log *slog.Logger)
}

const (
	lockctl      = "lockctl" // the name in help texts, which is replaced by Program.Name
	defaultShort = "Run commands under a distributed lock; show and break locks"
	defaultLong  = `lockctl runs a command while it holds a lock. The lock excludes all other processes
that request the same name at the same URL. lockctl also shows the holders and waiters.`
	defaultExample = `  lockctl run nightly -- backup.sh
  lockctl run --url redis://localhost:6379/0 --wait 10s nightly -- backup.sh
  lockctl elect scheduler -- ./scheduler
  lockctl list -o json
  lockctl top`
)

// Main runs the program with the arguments of the process and exits.
func (p Program) Main() {
	os.Exit(p.newApp(os.Stdin, os.Stdout, os.Stderr).execute(context.Background(), os.Args[1:]))
}

// AllCommands returns the commands of the program, for documentation and tests. They
// must not be run.
func (p Program) AllCommands() []*Command {
	return slices.DeleteFunc(p.newApp(nil, nil, nil).commands(), func(c *Command) bool { return c.hidden })
}

// Check returns an error if args are not a valid command line. It runs nothing.
func (p Program) Check(args []string) error {
	_, _, err := p.newApp(nil, nil, nil).parse(args)
	if errors.Is(err, errHelp) {
		return nil
	}
	return err
}

func (p Program) newApp(in, out, err *os.File) *App {
	p.Name = firstOf(p.Name, lockctl)
	p.Short = firstOf(p.Short, defaultShort)
	p.Long = firstOf(p.Long, defaultLong)
	p.Example = firstOf(p.Example, defaultExample)
	if p.Commands == nil {
		p.Commands = (*App).LockCommands
	}
	a := &App{Program: p, In: in, Out: out, Err: err, messages: newMessageQueue(err), getenv: os.Getenv, global: NewFlagSet()}
	a.global.StringVar(&a.url, "url", "", "URL of the service (default $"+envURL+", else a directory of the user)")
	a.global.Func("output", "`format`: table (the default), or json: results to stdout; messages and errors to stderr, one a line", a.setOutput)
	a.global.Shorthand("o", "output")
	a.global.Complete("output", func() []string { return []string{"json", "table"} })
	a.global.hints["json"] = "want -o json"
	a.global.BoolVar(&a.quiet, "quiet", false, "write only errors and questions to stderr")
	a.global.Shorthand("q", "quiet")
	a.global.BoolVar(&a.verbose, "verbose", false, "log the events of the lock on stderr")
	a.global.Shorthand("v", "verbose")
	a.global.Complete("url", CompleteURL)
	return a
}

// setOutput is the flag --output.
func (a *App) setOutput(format string) error {
	if format != "json" && format != "table" {
		return errors.New("want json or table")
	}
	a.json = format == "json"
	return nil
}

// execute runs the command that args name, and returns its exit code.
func (a *App) execute(ctx context.Context, args []string) int {
	defer a.messages.close()
	err := a.run(ctx, args)
	code := codeOf(err)
	var status exitStatus
	if err == nil || errors.As(err, &status) {
		return code
	}
	fields := map[string]any{"code": code, "reason": reason(code)}
	if locked := (*lock.LockedError)(nil); errors.As(err, &locked) {
		fields["holder"] = locked.Holder
	}
	a.say("error", strings.TrimPrefix(err.Error(), "lock: "), fields)
	return code
}

// LockCommands returns the commands of lockctl, except those that every program has.
func (a *App) LockCommands() []*Command {
	all := []*Command{
		a.runCommand(), a.electCommand(), a.inspectCommand(), a.listCommand(), a.watchCommand(), a.topCommand(),
		a.breakCommand(), a.pingCommand(),
	}
	if len(a.Program.Schemas) > 0 {
		all = append(all, a.schemaCommand())
	}
	return all
}

// longHelp returns the description of the program.
func (a *App) longHelp() string {
	return a.nameHelp(a.Program.Long + "\n\n" + urlHelp(backend.Schemes()))
}

// exampleHelp returns the examples of the program.
func (a *App) exampleHelp() string { return a.nameHelp(a.Program.Example) }

// nameHelp writes the name of the program into a help text.
func (a *App) nameHelp(text string) string { return strings.ReplaceAll(text, lockctl, a.Program.Name) }
