package conformance

import (
	"reflect"
	"strings"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/buildinfo"
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
	path, version := buildinfo.ModuleOf(pkg)
	return path + " " + version
}
