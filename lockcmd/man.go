package lockcmd

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func (a *App) manCommand() *Command {
	return &Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages to a directory",
		Long: `Write lockctl.1 and a page for each command, such as lockctl-man.1, to an existing
directory. The pages contain the text of --help.`,
		Example: `  lockctl man ~/.local/share/man/man1 && man lockctl-man
  lockctl man "$pkgdir/usr/share/man/man1"`,
		Args:     oneArg("DIRECTORY"),
		Complete: func(context.Context, Args, string) []string { return []string{completeFiles} },
		Run: func(_ context.Context, args []string) error {
			pages := a.pages()
			for _, p := range pages {
				path := filepath.Join(args[0], p.name+".1")
				if err := os.WriteFile(path, a.manPage(p, pages), 0o644); err != nil { //nolint:gosec // a manual is for all users
					return err
				}
			}
			return nil
		},
	}
}

// page is the content of a manual page.
type page struct {
	name     string // such as lockctl-run
	synopsis string
	short    string
	long     string
	example  string
	commands []*Command // of the page of the program
	flags    *FlagSet   // nil on the page of the program
}

// pages returns the page of the program and those of its commands.
func (a *App) pages() []page {
	name := a.Program.Name
	commands := slices.DeleteFunc(a.commands(), func(c *Command) bool { return c.hidden })
	out := []page{{
		name: name, synopsis: name + " COMMAND [flags]", short: a.Program.Short,
		long: a.longHelp(), example: a.exampleHelp(), commands: commands,
	}}
	for _, c := range commands {
		out = append(out, page{
			name: name + "-" + c.Name(), synopsis: name + " " + c.Use, short: c.Short, long: c.Long, example: c.Example, flags: c.Flags,
		})
	}
	return out
}

func (a *App) manPage(p page, all []page) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s \"User Commands\"\n.nh\n.ad l\n", roff(strings.ToUpper(p.name)), roff(a.Program.Name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(p.name), roff(p.short))
	manLiteral(&b, p.synopsis)
	b.WriteString(".SH DESCRIPTION\n")
	manText(&b, p.long)
	if len(p.commands) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range p.commands {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(c.Name()), roff(c.Short))
		}
	}
	b.WriteString(".SH OPTIONS\n")
	if p.flags != nil {
		manFlags(&b, p.flags)
		fmt.Fprintf(&b, ".TP\n.B %s\nshow the help of the command\n.SH OPTIONS OF ALL COMMANDS\n", roff("-h, --help"))
	}
	manFlags(&b, a.global)
	b.WriteString(".SH EXAMPLES\n")
	manLiteral(&b, strings.TrimRight(p.example, "\n"))
	b.WriteString(".SH SEE ALSO\n")
	var also []string
	for _, o := range all {
		if o.name != p.name {
			also = append(also, fmt.Sprintf(".BR %s (1)", roff(o.name)))
		}
	}
	b.WriteString(strings.Join(also, " ,\n") + "\n")
	return b.Bytes()
}

// manFlags writes the description of flags.
func manFlags(b *bytes.Buffer, flags *FlagSet) {
	flags.VisitAll(func(f *flag.Flag) {
		form, text := flagHelp(flags, f)
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(form)), roff(text))
	})
}

// manText writes paragraphs. It keeps the lines of a paragraph that has an indented line.
func manText(b *bytes.Buffer, text string) {
	for _, p := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		b.WriteString(".PP\n")
		if strings.HasPrefix(p, " ") || strings.HasPrefix(p, "\t") || strings.Contains(p, "\n ") {
			manLiteral(b, p)
			continue
		}
		for line := range strings.SplitSeq(p, "\n") {
			b.WriteString(roff(line) + "\n")
		}
	}
}

// manLiteral writes lines as they are.
func manLiteral(b *bytes.Buffer, text string) {
	b.WriteString(".nf\n")
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(roff(line) + "\n")
	}
	b.WriteString(".fi\n")
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// roff escapes a line, so that a page shows characters that can be typed and no line is
// a request.
func roff(line string) string {
	line = roffEscapes.Replace(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}
