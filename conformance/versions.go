package conformance

import (
	"reflect"
	"runtime/debug"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// suiteVersion returns the module and the version of the suite.
func suiteVersion() string { return moduleOf(reflect.TypeFor[Report]().PkgPath()) }

// driverVersion returns the module and the version of the package that b is of.
func driverVersion(b backend.Backend) string {
	for {
		wrapper, ok := b.(interface{ Unwrap() backend.Backend })
		if !ok {
			break
		}
		b = wrapper.Unwrap()
	}
	typ := reflect.TypeOf(b)
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	return moduleOf(strings.TrimSuffix(typ.PkgPath(), "_test"))
}

// moduleOf returns the module of a package and its version, "example.com/toy v1.2.0", or "(devel)" for one that was
// built from a work tree.
func moduleOf(pkg string) string {
	best := &debug.Module{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return pkg + " (devel)"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if (pkg == m.Path || strings.HasPrefix(pkg, m.Path+"/")) && len(m.Path) > len(best.Path) {
			best = m
		}
	}
	switch {
	case best.Path == "":
		return pkg + " (devel)"
	case best.Replace != nil || best.Version == "":
		return best.Path + " (devel)"
	}
	return best.Path + " " + best.Version
}
