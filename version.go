package lock

import "github.com/interlock-go/lock/internal/buildinfo"

// Version returns the version of this module in the running program, for example "v0.1.0", or
// "(devel)" if it was built from a work tree.
func Version() string {
	_, version := buildinfo.ModuleOf("github.com/interlock-go/lock")
	return version
}
