package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Command is a command of a Program.
type Command struct {
	Use     string // name and synopsis, such as "break [flags] NAME"
	Short   string // one line, without a full stop
	Long    string // default Short
	Example string // indented by two spaces
	Flags   *FlagSet

	// Args checks the arguments before Run. The default is NoArgs.
	Args func(c *Command, args Args) error
	// Complete returns candidates for the next argument. It may be nil.
	Complete func(ctx context.Context, args Args, word string) []string
	Run      func(ctx context.Context, args []string) error

	hidden bool // from help
}

// Args are the arguments of a command without its flags.
type Args struct {
	List []string
	Dash int // number of arguments before "--"; -1 without "--"
}

// Name returns the name of the command.
func (c *Command) Name() string {
	name, _, _ := strings.Cut(c.Use, " ")
	return name
}

func (c *Command) checkArgs(args Args) error {
	if c.Args == nil {
		return NoArgs(c, args)
	}
	return c.Args(c, args)
}

// NoArgs is the Args of a command without arguments.
func NoArgs(c *Command, args Args) error {
	if len(args.List) != 0 {
		return Usagef("unexpected argument %q: %s takes none", args.List[0], c.Name())
	}
	return nil
}

// oneArg returns the Args of a command with one argument.
func oneArg(argument string) func(*Command, Args) error {
	return func(c *Command, args Args) error {
		if len(args.List) != 1 {
			return Usagef("%d arguments for %s: want one, the %s", len(args.List), c.Name(), argument)
		}
		return nil
	}
}

// commands returns all commands of the program.
func (a *App) commands() []*Command {
	all := append(a.Program.Commands(a), a.manCommand(), a.versionCommand(), a.helpCommand(), a.completionCommand())
	slices.SortFunc(all, func(x, y *Command) int { return strings.Compare(x.Name(), y.Name()) })
	all = append(all, a.completeCommand())
	for _, c := range all {
		if c.Flags == nil {
			c.Flags = NewFlagSet()
		}
		for _, text := range []*string{&c.Long, &c.Example} {
			*text = a.nameHelp(*text)
		}
		c.Long = firstOf(c.Long, c.Short+".")
	}
	return all
}

// find returns a command.
func find(commands []*Command, name string) (*Command, error) {
	var names []string
	for _, c := range commands {
		if c.Name() == name {
			return c, nil
		}
		if !c.hidden {
			names = append(names, c.Name())
		}
	}
	hint := ""
	for _, known := range names {
		if similar(name, known) {
			hint = fmt.Sprintf(" (did you mean %s?)", known)
		}
	}
	return nil, Usagef("unknown command %q%s: want one of %s", name, hint, strings.Join(names, ", "))
}

// similar reports whether a word is another one with a letter too much, too few, or wrong, or with two neighbours swapped.
func similar(a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 1 && len(b) <= 1 || len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
}

// errHelp is returned for --help.
var errHelp = errors.New("help requested")

// parse returns the command that args name and its arguments. The command is nil if
// args name none.
func (a *App) parse(args []string) (*Command, Args, error) {
	commands := a.commands()
	before, rest := splitCommand(args, a.global)
	if _, err := parseFlags(before, a.global); err != nil || len(rest) == 0 {
		return nil, Args{}, a.flagError(err, nil)
	}
	c, err := find(commands, rest[0])
	if err != nil {
		return nil, Args{}, err
	}
	if c.hidden { // its arguments are a command line
		return c, Args{List: rest[1:], Dash: -1}, nil
	}
	parsed, err := parseFlags(rest[1:], c.Flags, a.global)
	if err != nil {
		return c, parsed, a.flagError(err, c)
	}
	return c, parsed, c.checkArgs(parsed)
}

// flagError makes an error of a flag a usage error.
func (a *App) flagError(err error, c *Command) error {
	if err == nil || errors.Is(err, errHelp) {
		return err
	}
	path := a.Program.Name
	if c != nil {
		path += " " + c.Name()
	}
	return Usagef("%w (see %s --help)", redacted{err}, path)
}

// run runs a command line.
func (a *App) run(ctx context.Context, args []string) error {
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"}
	}
	c, parsed, err := a.parse(args)
	if errors.Is(err, errHelp) {
		a.writeHelp(a.Out, c)
		return nil
	}
	if err == nil && c == nil {
		a.writeHelp(a.Err, nil)
		return Usagef("want a command")
	}
	if err == nil && a.quiet && a.verbose {
		err = Usagef("--quiet and --verbose contradict each other: want one of them")
	}
	if err != nil {
		return err
	}
	if a.Program.SetLogger != nil {
		a.Program.SetLogger(a.Logger())
	}
	return c.Run(ctx, parsed.List)
}

func (a *App) helpCommand() *Command {
	return &Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: "  lockctl help man",
		Args: func(c *Command, args Args) error {
			if len(args.List) > 1 {
				return Usagef("%d arguments for %s: want one COMMAND", len(args.List), c.Name())
			}
			return nil
		},
		Complete: func(_ context.Context, args Args, _ string) []string {
			if len(args.List) > 0 {
				return nil
			}
			return commandCandidates(a.commands())
		},
		Run: func(_ context.Context, args []string) error {
			if len(args) == 0 {
				a.writeHelp(a.Out, nil)
				return nil
			}
			c, err := find(a.commands(), args[0])
			if err == nil {
				a.writeHelp(a.Out, c)
			}
			return err
		},
	}
}
