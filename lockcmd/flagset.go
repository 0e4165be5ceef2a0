package lockcmd

import (
	"flag"
	"fmt"
	"slices"
	"strings"
)

// FlagSet has the flags of a command. Flags may stand before and after the arguments,
// up to "--".
type FlagSet struct {
	*flag.FlagSet
	short    map[string]string          // names by shorthand letter
	complete map[string]func() []string // candidates by name
}

// NewFlagSet returns a FlagSet without flags.
func NewFlagSet() *FlagSet {
	return &FlagSet{flag.NewFlagSet("", flag.ContinueOnError), map[string]string{}, map[string]func() []string{}}
}

// Shorthand lets -letter stand for the boolean flag --name.
func (f *FlagSet) Shorthand(letter, name string) { f.short[letter] = name }

// Complete sets the candidates for the value of a flag.
func (f *FlagSet) Complete(name string, candidates func() []string) { f.complete[name] = candidates }

// changed reports whether a flag was given.
func (f *FlagSet) changed(name string) (given bool) {
	f.Visit(func(fl *flag.Flag) { given = given || fl.Name == name })
	return given
}

// shorthand returns the letter of a flag, or "".
func (f *FlagSet) shorthand(name string) string {
	for letter, n := range f.short {
		if n == name {
			return letter
		}
	}
	return ""
}

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// lookup returns the set that has a flag, and the flag.
func lookup(name string, sets []*FlagSet) (*FlagSet, *flag.Flag) {
	for _, s := range sets {
		if f := s.Lookup(name); f != nil {
			return s, f
		}
	}
	return nil, nil
}

// parseFlags sets the flags in args and returns the arguments. The first set that has a
// flag gets it.
func parseFlags(args []string, sets ...*FlagSet) (Args, error) {
	out := Args{Dash: -1}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			out.Dash = len(out.List)
			out.List = append(out.List, args...)
			return out, nil
		case arg == "--help" || arg == "-h":
			return out, errHelp
		case strings.HasPrefix(arg, "--"):
			name, value, given := strings.Cut(arg[2:], "=")
			set, f := lookup(name, sets)
			switch {
			case f == nil:
				return out, fmt.Errorf("unknown flag: --%s", name)
			case given:
			case isBool(f):
				value = "true"
			case len(args) == 0:
				return out, fmt.Errorf("flag needs an argument: --%s", name)
			default:
				value, args = args[0], args[1:]
			}
			if err := set.Set(name, value); err != nil {
				return out, fmt.Errorf("invalid argument %q for %q flag: %w", value, "--"+name, err)
			}
		case strings.HasPrefix(arg, "-") && arg != "-":
			if err := setShorthands(arg, sets); err != nil {
				return out, err
			}
		default:
			out.List = append(out.List, arg)
		}
	}
	return out, nil
}

// setShorthands sets the boolean flags of -xyz.
func setShorthands(arg string, sets []*FlagSet) error {
	for _, letter := range arg[1:] {
		i := slices.IndexFunc(sets, func(s *FlagSet) bool { return s.short[string(letter)] != "" })
		if i < 0 {
			return fmt.Errorf("unknown shorthand flag: %q in %s", letter, arg)
		}
		if err := sets[i].Set(sets[i].short[string(letter)], "true"); err != nil {
			return err
		}
	}
	return nil
}

// splitCommand splits a command line before the name of the command.
func splitCommand(args []string, global *FlagSet) (before, rest []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !strings.HasPrefix(arg, "-") || arg == "-" || arg == "--" {
			return args[:i], args[i:]
		}
		name, _, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if f := global.Lookup(name); f != nil && !given && !isBool(f) && strings.HasPrefix(arg, "--") {
			i++ // its value
		}
	}
	return args, nil
}
