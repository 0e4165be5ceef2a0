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
		var fast bool
		var wait waitLimit
		f := NewFlagSet()
		f.StringVar(&text, "text", "", "a text")
		f.BoolVar(&fast, "fast", false, "a switch")
		f.Shorthand("f", "fast")
		f.Shorthand("t", "text")
		f.hints["n"] = "want --wait 0"
		f.Var(&wait, "wait", "a limit")
		f.Complete("text", func() []string { return []string{"one", "other", "two"} })
		f.String("words", "", "a list")
		f.CompleteList("words", func() []string { return []string{"one", "other", "two"} })
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
				if fast {
					*flags += " fast"
				}
				if a.JSON() {
					*flags += " json"
				}
				if a.quiet {
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
		"do":                             {"", "  forever", ""},
		"do a --text x b":                {"a b", " x forever", ""},
		"--url u do a --text=x=y --fast": {"a", "u x=y forever fast", ""},
		"-v do --url=u -f a":             {"a", "u  forever fast verbose", ""},
		"do -fv a":                       {"a", "  forever fast verbose", ""},
		"do --fast=false a":              {"a", "  forever", ""},
		"do --wait 0 a -- --text x -f":   {"a --text x -f", "  0s", ""},
		"do --text -- -- a":              {"a", " -- forever", ""},
		"do - a":                         {"- a", "  forever", ""},
		"do --text":                      {"", "", "flag needs an argument: --text (see testctl do --help)"},
		"do --nope":                      {"", "", "unknown flag: --nope (see testctl do --help)"},
		"do -x":                          {"", "", "unknown shorthand flag: 'x' in -x"},
		"do -n a":                        {"", "", "unknown shorthand flag: 'n' in -n; want --wait 0 (see testctl do --help)"},
		"do --json":                      {"", "", "unknown flag: --json; want -o json (see testctl do --help)"},
		"-o json do a":                   {"a", "  forever json", ""},
		"do -vojson a":                   {"a", "  forever json verbose", ""},
		"do -o=json a -o table":          {"a", "  forever", ""},
		"-q do a":                        {"a", "  forever quiet", ""},
		"do -qv a":                       {"", "", "--quiet and --verbose contradict each other: want one of them"},
		"-vt x do":                       {"", "", "unknown shorthand flag: 't' in -vt"},
		"do -ft x a":                     {"a", " x forever fast", ""},
		"do a -o":                        {"", "", "flag needs an argument: --output"},
		"do -o xml":                      {"", "", `invalid argument "xml" for "--output" flag: want json or table`},
		"-n do":                          {"", "", "unknown shorthand flag: 'n' in -n (see"},
		"do --wait soon":                 {"", "", `invalid argument "soon" for "--wait" flag: want forever`},
		"--nope":                         {"", "", "unknown flag: --nope (see testctl --help)"},
		"other":                          {"", "", `unknown command "other": want one of completion, do, help, man, version`},
		"od":                             {"", "", `unknown command "od" (did you mean do?): want one of`},
		"-v":                             {"", "", "want a command"},
		"do --redis://u:secret@h/0":      {"", "", "unknown flag: --redis://***@h/0"},
		"help do do":                     {"", "", "2 arguments for help"},
		"completion tcsh":                {"", "", "want one of bash, fish, powershell, zsh"},
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

func TestSimilar(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]bool{
		"lsit": true, "lst": true, "listt": true, "liszt": true, "lisp": true, "mist": true, "ist": true, "slit": false, "tsil": false, "": false, "li": false,
	} {
		if got := similar(word, "list"); got != want {
			t.Errorf("%q and list: %v, want %v", word, got, want)
		}
	}
}

// The error for a flag of flock says what run has instead, and run accepts that.
func TestFlockFlags(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"-n": "--wait 0", "--nonblock": "--wait 0", "-w 10": "--wait 10s", "--timeout=10": "--wait 10s",
		"-x": "a lock is exclusive without --read", "--exclusive": "a lock is exclusive without --read", "-s": "--read", "--shared": "--read",
		"-u": "released when the command ends", "--unlock": "released when the command ends",
	} {
		check := func(flags string) error {
			return Program{}.Check(append(append([]string{"run"}, strings.Fields(flags)...), "x", "--", "true"))
		}
		if err := check(given); codeOf(err) != ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", given, err, want)
		}
		if strings.HasPrefix(want, "--") {
			if err := check(want); err != nil {
				t.Errorf("%s: %v", want, err)
			}
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
		"do --url=u --fast a":  {"a\tthe first of u", "ab"},
		"do --text o":          {"one", "other"},
		"do --text=o":          {"--text=one", "--text=other"},
		"do --text one,o":      nil,
		"do --words o":         {"one", "other"},
		"do --words two,no,ot": {"two,no,other"},
		"do --words=two,t":     {"--words=two,two"},
		"do --words=t":         {"--words=two"},
		"do --fast b":          {"b"},
		"do --f":               {"--fast\ta switch"},
		"do -o j":              {"json"},
		"-vo json d":           {"do\tDo it"},
		"do -o json b":         {"b"},
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
