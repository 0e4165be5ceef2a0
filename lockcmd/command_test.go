package lockcmd

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// testProgram has one command, which returns its arguments and flags.
func testProgram(got *[]string, flags *string) Program {
	return Program{Name: "testctl", Commands: func(a *App) []*Command {
		var text string
		var quiet bool
		var wait waitLimit
		f := NewFlagSet()
		f.StringVar(&text, "text", "", "a text")
		f.BoolVar(&quiet, "quiet", false, "a switch")
		f.Shorthand("q", "quiet")
		f.Var(&wait, "wait", "a limit")
		f.Complete("text", func() []string { return []string{"one", "other", "two"} })
		return []*Command{{
			Use: "do [flags] NAME...", Short: "Do it", Flags: f,
			Args: func(_ *Command, args Args) error {
				*got = args.List
				return nil
			},
			Complete: func(_ context.Context, args Args, _ string) []string {
				if args.Dash >= 0 {
					return []string{completeFiles}
				}
				return []string{"a\tthe first of " + a.FlagURL(), "b", "ab"}
			},
			Run: func(context.Context, []string) error {
				*flags = strings.Join([]string{a.FlagURL(), text, wait.String()}, " ")
				if quiet {
					*flags += " quiet"
				}
				if a.verbose {
					*flags += " verbose"
				}
				return nil
			},
		}}
	}}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct{ args, flags, err string }{
		"do":                              {"", "  forever", ""},
		"do a --text x b":                 {"a b", " x forever", ""},
		"--url u do a --text=x=y --quiet": {"a", "u x=y forever quiet", ""},
		"-v do --url=u -q a":              {"a", "u  forever quiet verbose", ""},
		"do -qv a":                        {"a", "  forever quiet verbose", ""},
		"do --quiet=false a":              {"a", "  forever", ""},
		"do --wait 0 a -- --text x -q":    {"a --text x -q", "  0s", ""},
		"do --text -- -- a":               {"a", " -- forever", ""},
		"do - a":                          {"- a", "  forever", ""},
		"do --text":                       {"", "", "flag needs an argument: --text (see testctl do --help)"},
		"do --nope":                       {"", "", "unknown flag: --nope (see testctl do --help)"},
		"do -x":                           {"", "", "unknown shorthand flag: 'x' in -x"},
		"do --wait soon":                  {"", "", `invalid argument "soon" for "--wait" flag: want forever`},
		"--nope":                          {"", "", "unknown flag: --nope (see testctl --help)"},
		"other":                           {"", "", `unknown command "other": want one of completion, do, help, man, version`},
		"do --redis://u:secret@h/0":       {"", "", "unknown flag: --redis://***@h/0"},
		"help do do":                      {"", "", "2 arguments for help"},
		"completion tcsh":                 {"", "", "want one of bash, fish, powershell, zsh"},
	} {
		var args []string
		var flags string
		err := testProgram(&args, &flags).newApp(nil, nil, nil).run(t.Context(), strings.Fields(line))
		switch {
		case want.err != "":
			if codeOf(err) != ExitUsage || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%s: %v, want %s", line, err, want.err)
			}
		case err != nil || strings.Join(args, " ") != want.args || flags != want.flags:
			t.Errorf("%s: %v, %q, %q; want %q, %q", line, err, args, flags, want.args, want.flags)
		}
	}
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	var args []string
	var flags string
	for line, want := range map[string][]string{
		"d":                    {"do\tDo it"},
		"--url mem: d":         {"do\tDo it"},
		"do a":                 {"a\tthe first of ", "ab"},
		"do --url=u --quiet a": {"a\tthe first of u", "ab"},
		"do --text o":          {"one", "other"},
		"do --text=o":          {"--text=one", "--text=other"},
		"do --quiet b":         {"b"},
		"do --q":               {"--quiet\ta switch"},
		"do x -- b":            {completeFiles},
		"do --wait a":          nil,
		"completion p":         {"powershell"},
		"nope a":               nil,
	} {
		words := strings.Split(line, " ")
		a := testProgram(&args, &flags).newApp(nil, nil, nil)
		got := a.candidates(t.Context(), words[:len(words)-1], words[len(words)-1])
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// A script has the name of the program and calls its hidden command.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for shell, script := range completionScripts {
		script = (&App{Program: Program{Name: "testctl"}}).nameHelp(script)
		if strings.Contains(script, lockctl) || !strings.Contains(script, "testctl") || !strings.Contains(script, " __complete ") {
			t.Errorf("%s: %s", shell, script)
		}
	}
}
