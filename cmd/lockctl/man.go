package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages to a directory",
		Long: `Write lockctl.1 and a page for each command, lockctl-run.1 and so on, to a directory
that exists. They are made from what --help says, and are the same each time.`,
		Example: `  lockctl man ~/.local/share/man/man1 && man lockctl-run
  lockctl man "$pkgdir/usr/share/man/man1"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("%d arguments for %s: want one, the DIRECTORY", len(args), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
				path := filepath.Join(args[0], pageName(c)+".1")
				if err := os.WriteFile(path, manPage(c), 0o644); err != nil { //nolint:gosec // a manual is there to be read
					return err
				}
			}
			return nil
		},
	}
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the manual page of a command. The text of --help has tables in it, which
// a detour by Markdown, as cobra's own pages make it, would fold into paragraphs.
func manPage(c *cobra.Command) []byte {
	var b bytes.Buffer
	c.InitDefaultHelpFlag()
	fmt.Fprintf(&b, ".TH %s 1 \"\" lockctl \"User Commands\"\n.nh\n.ad l\n", roff(strings.ToUpper(pageName(c))))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(pageName(c)), roff(c.Short))
	b.WriteString(".SH SYNOPSIS\n")
	if c.Runnable() && c.HasParent() {
		manLiteral(&b, c.UseLine())
	} else {
		manLiteral(&b, c.CommandPath()+" COMMAND [flags]")
	}
	b.WriteString(".SH DESCRIPTION\n")
	manText(&b, firstOf(c.Long, c.Short+"."))
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(sub.Name()), roff(sub.Short))
			}
		}
	}
	for _, f := range []struct{ title, text string }{
		{"OPTIONS", c.NonInheritedFlags().FlagUsagesWrapped(80)},
		{"OPTIONS OF ALL COMMANDS", c.InheritedFlags().FlagUsagesWrapped(80)},
		{"EXAMPLES", c.Example},
	} {
		if f.text != "" {
			fmt.Fprintf(&b, ".SH %s\n", f.title)
			manLiteral(&b, strings.TrimRight(f.text, "\n"))
		}
	}
	b.WriteString(".SH SEE ALSO\n")
	var also []string
	for _, o := range append([]*cobra.Command{c.Root()}, c.Root().Commands()...) {
		if o != c {
			also = append(also, fmt.Sprintf(".BR %s (1)", roff(pageName(o))))
		}
	}
	b.WriteString(strings.Join(also, " ,\n") + "\n")
	return b.Bytes()
}

func firstOf(s ...string) string {
	for _, s := range s {
		if s != "" {
			return s
		}
	}
	return ""
}

// manText sets paragraphs, and leaves as they are those with a line that is indented.
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

// manLiteral sets lines as they are.
func manLiteral(b *bytes.Buffer, text string) {
	b.WriteString(".nf\n")
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(roff(line) + "\n")
	}
	b.WriteString(".fi\n")
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// roff escapes a line: what a page shows can be typed, and none is taken for a request.
func roff(line string) string {
	line = roffEscapes.Replace(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}
