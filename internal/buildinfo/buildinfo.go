// Package buildinfo finds the version of a module in the running program.
package buildinfo

import (
	"runtime/debug"
	"strings"
)

// Devel is the version of a module that was built from a work tree.
const Devel = "(devel)"

// ModuleOf returns the module of a package and its version. It returns the package and Devel if
// the program does not say what it was built from.
func ModuleOf(pkg string) (path, version string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return pkg, Devel
	}
	return moduleOf(pkg, append(info.Deps, &info.Main))
}

func moduleOf(pkg string, modules []*debug.Module) (path, version string) {
	best := &debug.Module{}
	for _, m := range modules {
		if (pkg == m.Path || strings.HasPrefix(pkg, m.Path+"/")) && len(m.Path) > len(best.Path) {
			best = m
		}
	}
	switch {
	case best.Path == "":
		return pkg, Devel
	case best.Replace != nil || best.Version == "":
		return best.Path, Devel
	}
	return best.Path, best.Version
}
