package buildinfo

import (
	"runtime/debug"
	"testing"
)

func TestModuleOf(t *testing.T) {
	modules := []*debug.Module{
		{Path: "example.com/app"},
		{Path: "example.com/lock", Version: "v1.2.0"},
		{Path: "example.com/lock/driver", Version: "v1.3.0"},
		{Path: "example.com/local", Version: "v1.4.0", Replace: &debug.Module{Path: "../local"}},
	}
	for pkg, want := range map[string][2]string{
		"example.com/lock":            {"example.com/lock", "v1.2.0"},
		"example.com/lock/backend":    {"example.com/lock", "v1.2.0"},
		"example.com/lock/driver/sub": {"example.com/lock/driver", "v1.3.0"},
		"example.com/locks":           {"example.com/locks", Devel},
		"example.com/local":           {"example.com/local", Devel},
		"example.com/app/main":        {"example.com/app", Devel},
	} {
		if path, version := moduleOf(pkg, modules); [2]string{path, version} != want {
			t.Errorf("%s: got %s %s, want %v", pkg, path, version, want)
		}
	}
}
