package lockcmd

import (
	"flag"
	"fmt"
	"strings"
	"unicode/utf8"
)

// FlagSet has the flags of a command. Flags may stand before and after the arguments,
// up to "--".
type FlagSet struct {
	*flag.FlagSet
	short    map[string]string          // names by shorthand letter
	complete map[string]func() []string // candidates by name
	lists    map[string]bool            // flags whose value is a list
	hints    map[string]string          // for the error, by a name or letter that is no flag
}

// NewFlagSet returns a FlagSet without flags.
func NewFlagSet() *FlagSet {
	return &FlagSet{flag.NewFlagSet("", flag.ContinueOnError), map[string]string{}, map[string]func() []string{}, map[string]bool{}, map[string]string{}}
}

// Shorthand lets -letter stand for the flag --name.
func (f *FlagSet) Shorthand(letter, name string) { f.short[letter] = name }

// Complete sets the candidates for the value of a flag.
func (f *FlagSet) Complete(name string, candidates func() []string) { f.complete[name] = candidates }

// CompleteList sets the candidates for each part of a value with commas.
func (f *FlagSet) CompleteList(name string, candidates func() []string) {
	f.Complete(name, candidates)
	f.lists[name] = true
}

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

// longName returns the name of the flag that a letter stands for, or "".
func longName(letter string, sets []*FlagSet) string {
	for _, s := range sets {
		if name := s.short[letter]; name != "" {
			return name
		}
	}
	return ""
}

// hint returns the end of the error for an unknown flag.
func hint(name string, sets []*FlagSet) string {
	for _, s := range sets {
		if text := s.hints[name]; text != "" {
			return "; " + text
		}
	}
	return ""
}

// setFlag sets a flag. Its value is the next of args if it needs one and none was given.
func setFlag(name, value string, given bool, args []string, sets []*FlagSet) (rest []string, err error) {
	set, f := lookup(name, sets)
	switch {
	case given:
	case isBool(f):
		value = "true"
	case len(args) == 0:
		return args, fmt.Errorf("flag needs an argument: --%s", name)
	default:
		value, args = args[0], args[1:]
	}
	if err := set.Set(name, value); err != nil {
		return args, fmt.Errorf("invalid argument %q for %q flag: %w", value, "--"+name, err)
	}
	return args, nil
}

// parseFlags sets the flags in args and returns the arguments. The first set that has a
// flag gets it.
func parseFlags(args []string, sets ...*FlagSet) (Args, error) {
	out := Args{Dash: -1}
	for len(args) > 0 {
		var err error
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
			if _, f := lookup(name, sets); f == nil {
				return out, fmt.Errorf("unknown flag: --%s%s", name, hint(name, sets))
			}
			args, err = setFlag(name, value, given, args, sets)
		case strings.HasPrefix(arg, "-") && arg != "-":
			args, err = setShorthands(arg, args, sets)
		default:
			out.List = append(out.List, arg)
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// setShorthands sets the flags of -xyz. What follows the letter of a flag with a value is
// its value, as in -ojson and -o=json.
func setShorthands(arg string, args []string, sets []*FlagSet) (rest []string, err error) {
	for i, letter := range arg[1:] {
		name := longName(string(letter), sets)
		if name == "" {
			return args, fmt.Errorf("unknown shorthand flag: %q in %s%s", letter, arg, hint(string(letter), sets))
		}
		value := arg[1+i+utf8.RuneLen(letter):]
		if _, f := lookup(name, sets); !isBool(f) {
			return setFlag(name, strings.TrimPrefix(value, "="), value != "", args, sets)
		}
		if args, err = setFlag(name, "", false, args, sets); err != nil {
			return args, err
		}
	}
	return args, nil
}

// valueFlag returns the name of the flag in word if the next word is its value, else "".
func valueFlag(word string, sets []*FlagSet) string {
	name, ok := strings.CutPrefix(word, "--")
	if !ok && strings.HasPrefix(word, "-") {
		name = longName(word[len(word)-1:], sets)
	}
	if _, f := lookup(name, sets); f == nil || isBool(f) || !strings.HasPrefix(word, "-") {
		return ""
	}
	return name
}

// splitCommand splits a command line before the name of the command.
func splitCommand(args []string, global *FlagSet) (before, rest []string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !strings.HasPrefix(arg, "-") || arg == "-" || arg == "--" {
			return args[:i], args[i:]
		}
		if valueFlag(arg, []*FlagSet{global}) != "" {
			i++ // its value
		}
	}
	return args, nil
}
