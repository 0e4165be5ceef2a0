package lockcmd

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// urlForms are the URLs of the known drivers.
var urlForms = []struct{ scheme, form, scope string }{
	{"file", "file:///var/lib/locks", "for the processes of this machine"},
	{"redis", "redis://user:password@host:6379/0", "for all clients of the server"},
	{"rediss", "rediss://...  redis+sentinel://...  redis+cluster://...", ""},
	{"redlock", "redlock://host1,host2,host3,...", "a majority of independent Redis servers"},
	{"etcd", "etcd://host:2379  etcds://...", "consensus"},
	{"postgres", "postgres://user@host/database", "for all clients of the database"},
	{"mysql", "mysql://user@host/database", "the same, MySQL or MariaDB"},
	{"memcached", "memcached://host1:11211,host2:11211", "until a restart or an eviction"},
	{"nats", "nats://user:password@host/bucket", "consensus, if the bucket has replicas"},
	{"s3", "s3://bucket/prefix?region=REGION", "for all clients of the bucket"},
	{"zk", "zk://host1:2181,host2:2181/chroot", "consensus"},
}

// urlHelp describes the URLs of the registered schemes.
func urlHelp(schemes []string) string {
	var b strings.Builder
	b.WriteString("The URL, given by --url or by the variable " + envURL + ", selects the service:\n\n")
	known := false
	for _, u := range urlForms {
		if slices.Contains(schemes, u.scheme) {
			known = true
			b.WriteString(strings.TrimRight(fmt.Sprintf("  %-37s %s", u.form, u.scope), " ") + "\n")
		}
	}
	if !known {
		fmt.Fprintf(&b, "  schemes: %s\n", strings.Join(schemes, ", "))
	}
	if slices.Contains(schemes, "file") {
		b.WriteString("\nThe default is a directory of the user: $XDG_STATE_HOME/interlock, or\n~/.local/state/interlock.\n")
	}
	b.WriteString("\nUse " + envURL + " for a URL with a password: every user of the machine can read the\narguments of a process.")
	return b.String()
}

// writeHelp writes the help of a command, or of the program if c is nil.
func (a *App) writeHelp(w io.Writer, c *Command) {
	if c == nil {
		a.writeProgramHelp(w)
		return
	}
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s %s\n", c.Long, a.Program.Name, c.Use)
	if c.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	writeFlags(w, "Flags", c.Flags)
	writeFlags(w, "Global Flags", a.global)
}

func (a *App) writeProgramHelp(w io.Writer) {
	name := a.Program.Name
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s COMMAND [flags]\n\nExamples:\n%s\n\nCommands:\n", a.longHelp(), name, a.exampleHelp())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range a.commands() {
		if !c.hidden {
			fmt.Fprintf(t, "  %s\t%s\n", c.Name(), c.Short)
		}
	}
	_ = t.Flush()
	writeFlags(w, "Flags", a.global)
	fmt.Fprintf(w, "\nUse \"%s help COMMAND\" for the help of a command.\n", name)
}

// writeFlags writes a table of flags.
func writeFlags(w io.Writer, title string, flags *FlagSet) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	first := true
	flags.VisitAll(func(f *flag.Flag) {
		if first {
			fmt.Fprintf(w, "\n%s:\n", title)
			first = false
		}
		form, text := flagHelp(flags, f)
		fmt.Fprintf(t, "  %s\t%s\n", form, text)
	})
	_ = t.Flush()
}

// flagHelp returns the form of a flag, such as "-q, --quiet", and its description.
func flagHelp(flags *FlagSet, f *flag.Flag) (form, text string) {
	form = "--" + f.Name
	if letter := flags.shorthand(f.Name); letter != "" {
		form = "-" + letter + ", " + form
	} else {
		form = "    " + form
	}
	kind, text := flag.UnquoteUsage(f)
	if t, ok := f.Value.(interface{ Type() string }); ok {
		kind = t.Type()
	}
	if kind != "" {
		form += " " + kind
	}
	switch f.DefValue {
	case "", "false", "0", "0s":
	default:
		text += fmt.Sprintf(" (default %s)", f.DefValue)
	}
	return form, text
}
