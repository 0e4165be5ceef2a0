package main

import (
	"slices"
	"strings"
	"testing"
)

const module = "github.com/interlock-go/lock"

// A small workspace: a driver uses the contract, the suite uses the core, and a test of the driver uses the suite.
var workspace = []goPackage{
	{path: module, folder: ".", tests: true, deps: []string{module + "/backend"}},
	{path: module + "/backend", folder: "backend", tests: true},
	{path: module + "/conformance", folder: "conformance", tests: true, deps: []string{module, module + "/backend"}},
	{path: module + "/etcdlock", folder: "etcdlock", tests: true, deps: []string{module + "/backend"}},
	{path: module + "/fence", folder: "fence", tests: true},
	{path: module + "/integration/etcd", folder: "integration/etcd", tests: true, imports: []string{module + "/conformance", module + "/etcdlock"}},
	{path: module + "/integration/faults", folder: "integration/faults", tests: true, imports: []string{module + "/etcdlock"}},
	{path: module + "/integration/suite", folder: "integration/suite"},
}

func TestTouchedBy(t *testing.T) {
	for _, tt := range []struct {
		file string
		want string // folders
	}{
		{"fence/fence.go", "fence"},
		{"etcdlock/session.go", "etcdlock integration/etcd integration/faults"},
		{"etcdlock/testdata/deep/a.txt", "etcdlock integration/etcd integration/faults"},
		{"conformance/case.go", "conformance integration/etcd"},
		{"lease.go", ". conformance integration/etcd"},
		{"backend/url.go", ". backend conformance etcdlock integration/etcd integration/faults"},
		{"README.md", ""},
		{"docs/operations.md", ""},
		{"Makefile", ""},
	} {
		var got []string
		for _, p := range touchedBy(workspace, []string{tt.file}) {
			got = append(got, p.folder)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: got %q, want %q", tt.file, s, tt.want)
		}
	}
}

func TestTested(t *testing.T) {
	got := tested(workspace, backends)
	if len(got) != 6 || slices.Contains(got, module+"/integration/faults") || slices.Contains(got, module+"/integration/suite") {
		t.Errorf("all backends: got %q, want all packages with tests but integration/faults", got)
	}
	if slices.Index(got, module+"/integration/etcd") > slices.Index(got, module+"/backend") {
		t.Errorf("all backends: got %q, want those that take long first", got)
	}
	for name, want := range map[string][]string{
		"etcd":  {module + "/integration/etcd", module + "/etcdlock"},
		"redis": {},
		"core":  {module + "/conformance", module, module + "/backend", module + "/fence"},
	} {
		chosen, err := backendsOf([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		if got := tested(workspace, chosen); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if _, err := backendsOf([]string{"oracle"}); err == nil || !strings.Contains(err.Error(), `backend "oracle": want file, redis,`) {
		t.Errorf("an unknown backend: got %v", err)
	}
}

// Each backend that a change touches either runs or is named.
func TestFitting(t *testing.T) {
	files := []string{"etcdlock/session.go", "integration/postgres/pgbouncer/pgbouncer_test.go", "redislock/internal/protocol/keys.go"}
	for _, tt := range []struct {
		minutes      int
		chosen, left string
	}{
		{1000, "redis redlock etcd postgres", ""},
		{0, "", "redis redlock etcd postgres"},
	} {
		chosen, left := fitting(files, tt.minutes)
		if c, l := strings.Join(chosen, " "), strings.Join(left, " "); c != tt.chosen || l != tt.left {
			t.Errorf("%d minutes: got %q and %q, want %q and %q", tt.minutes, c, l, tt.chosen, tt.left)
		}
	}
	if chosen, _ := fitting([]string{"lease.go"}, 1000); !slices.Equal(chosen, []string{"core"}) {
		t.Errorf("a file of the core: got %q", chosen)
	}
}

// The tests of faults that are about no service run in one of the two runs, and all services in the other.
func TestFaultRuns(t *testing.T) {
	got := strings.Join(slices.Concat(faultRuns(backends)...), " ")
	for _, want := range []string{"-skip=^TestFaults$", "-run=^TestFaults$/^(file|redis.*|redlock.*|etcd.*|zookeeper.*|postgres|mariadb|memcached|nats.*|s3.*)$"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
