package lockcmd

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/interlock-go/lock/backend"
)

func (a *App) versionCommand() *Command {
	return &Command{
		Use:   "version",
		Short: "Show the version and the URL schemes",
		Example: `  lockctl version
  lockctl version -o json | jq -r '.schemes[]'`,
		Run: func(context.Context, []string) error {
			v := struct {
				Version string   `json:"version"`
				Go      string   `json:"go"`
				Schemes []string `json:"schemes"`
			}{buildVersion(), runtime.Version(), backend.Schemes()}
			return a.Result(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s, built with %s, for %s\n", a.Program.Name, v.Version, v.Go, strings.Join(v.Schemes, ", "))
			})
		},
	}
}

// buildVersion returns the version of the program, and the commit of a development
// version.
func buildVersion() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := b.Main.Version
	for _, s := range b.Settings {
		if s.Key == "vcs.revision" && version == "(devel)" {
			version += " " + s.Value
		}
	}
	return version
}
