package lockcmd

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// completeFiles is a candidate that makes the shell complete the name of a file.
const completeFiles = ":files"

// CompleteURL returns the registered schemes as candidates for a URL.
func CompleteURL() []string {
	var out []string
	for _, s := range backend.Schemes() {
		form := s + "://"
		if s == "file" {
			form += "/"
		}
		out = append(out, form)
	}
	return out
}

// completeCommand prints the candidates for the last word of a command line, one a
// line, with a description after a tab. The completion scripts of the shells call it.
func (a *App) completeCommand() *Command {
	return &Command{
		Use:    "__complete WORD...",
		hidden: true,
		Run: func(ctx context.Context, words []string) error {
			if len(words) == 0 {
				words = []string{""}
			}
			for _, c := range a.candidates(ctx, words[:len(words)-1], words[len(words)-1]) {
				fmt.Fprintln(a.Out, c)
			}
			return nil
		},
	}
}

// candidates returns the candidates for word after the given words.
func (a *App) candidates(ctx context.Context, before []string, word string) []string {
	commands := a.commands()
	flags, rest := splitCommand(before, a.global)
	sets := []*FlagSet{a.global}
	var c *Command
	if len(rest) > 0 {
		var err error
		if c, err = find(commands, rest[0]); err != nil {
			return nil
		}
		flags, sets = append(slices.Clone(flags), rest[1:]...), []*FlagSet{c.Flags, a.global}
	}
	if slices.Contains(flags, "--") { // arguments only
		args, _ := parseFlags(flags, sets...)
		return a.argCandidates(ctx, c, args, word)
	}
	if len(flags) > 0 {
		if f := valueFlag(flags[len(flags)-1], sets); f != "" {
			return valueCandidates(f, "", word, sets)
		}
	}
	if name, _, ok := strings.Cut(word, "="); ok && strings.HasPrefix(name, "--") {
		return valueCandidates(name[2:], name+"=", word, sets)
	}
	if strings.HasPrefix(word, "-") {
		return flagCandidates(word, sets)
	}
	if c == nil {
		return withPrefix(commandCandidates(commands), word)
	}
	args, _ := parseFlags(flags, sets...)
	return a.argCandidates(ctx, c, args, word)
}

func (a *App) argCandidates(ctx context.Context, c *Command, args Args, word string) []string {
	if c == nil || c.Complete == nil {
		return nil
	}
	return withPrefix(c.Complete(ctx, args, word), word)
}

// valueCandidates returns the values of a flag, each after prefix.
func valueCandidates(name, prefix, word string, sets []*FlagSet) []string {
	set, f := lookup(name, sets)
	if f == nil || set.complete[name] == nil {
		return nil
	}
	if set.lists[name] {
		prefix = word[:max(len(prefix), strings.LastIndex(word, ",")+1)]
	}
	var out []string
	for _, v := range set.complete[name]() {
		out = append(out, prefix+v)
	}
	return withPrefix(out, word)
}

func flagCandidates(word string, sets []*FlagSet) []string {
	var out []string
	for _, s := range sets {
		s.VisitAll(func(f *flag.Flag) { out = append(out, "--"+f.Name+"\t"+f.Usage) })
	}
	return withPrefix(out, word)
}

func commandCandidates(commands []*Command) []string {
	var out []string
	for _, c := range commands {
		if !c.hidden {
			out = append(out, c.Name()+"\t"+c.Short)
		}
	}
	return out
}

// withPrefix returns the candidates that begin with word, and completeFiles.
func withPrefix(candidates []string, word string) []string {
	return slices.DeleteFunc(candidates, func(c string) bool { return c != completeFiles && !strings.HasPrefix(c, word) })
}
