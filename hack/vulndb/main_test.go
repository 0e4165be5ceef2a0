package main

import (
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	version = "v0.0.0-20200102030405-0123456789ab"
	about   = `"database_specific":{"url":"https://example.com/about"},`
	one     = `{` + about + `"id":"GO-1999-0001","modified":"0001-01-01T00:00:00Z","aliases":["CVE-1999-1"],"affected":[
		{"package":{"name":"example.com/old","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"1.1.0"}]}],
		 "ecosystem_specific":{"imports":[{"path":"example.com/old","symbols":["Bad"]}]}},
		{"package":{"name":"example.com/old","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"1.5.0"},{"fixed":"1.6.0"}]}]}]}`
	two = `{` + about + `"id":"GO-1999-0002","modified":"0001-01-01T00:00:00Z","affected":[{"package":{"name":"example.com/another"}},{"package":{"name":"example.com/old"},"ranges":[{"type":"SEMVER","events":[{"introduced":"2.0.0"}]}]}]}`
)

// proxy makes a module proxy of files, the only one that the go command then knows.
func proxy(t *testing.T, modules map[string]map[string]string) { // path@version, its files
	t.Helper()
	root := t.TempDir()
	for what, files := range modules {
		path, version, _ := strings.Cut(what, "@")
		dir := filepath.Join(root, path, "@v")
		write(t, filepath.Join(dir, version+".info"), fmt.Sprintf(`{"Version":%q,"Time":"2020-01-02T03:04:05Z"}`, version))
		write(t, filepath.Join(dir, version+".mod"), "module "+path+"\n")
		write(t, filepath.Join(dir, "list"), "")
		write(t, filepath.Join(root, path, "@latest"), fmt.Sprintf(`{"Version":%q,"Time":"2020-01-02T03:04:05Z"}`, version))
		f, err := os.Create(filepath.Join(dir, version+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(f)
		files["go.mod"] = "module " + path + "\n"
		for name, text := range files {
			w, err := z.Create(what + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(z.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		"GOPROXY": "file://" + root, "GOMODCACHE": t.TempDir(), "GOFLAGS": "-modcacherw -mod=mod", "GONOSUMDB": "*", "GOWORK": "off",
	} {
		t.Setenv(name, value)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o750), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// absent is a database that cannot be reached.
func absent(t *testing.T) string {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL
}

func TestOnline(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index/db.json.gz" {
			t.Errorf("asked for %s", r.URL)
		}
		z := gzip.NewWriter(w)
		defer z.Close()
		_, _ = z.Write([]byte(`{"modified":"2021-02-03T04:05:06Z"}`))
	}))
	defer s.Close()
	db, said, err := find(t.Context(), s.URL, filepath.Join(t.TempDir(), "unused"))
	if err != nil || db != s.URL || !strings.Contains(said, s.URL+", last changed 2021-02-03") {
		t.Errorf("%q, %q, %v", db, said, err)
	}
}

func TestFromModule(t *testing.T) {
	proxy(t, map[string]map[string]string{module + "@" + version: {"data/osv/GO-1999-0001.json": one, "data/osv/GO-1999-0002.json": two}})
	folder := t.TempDir()
	write(t, filepath.Join(folder, "ID", "GO-1998-0001.json"), "of an earlier run")
	db, said, err := find(t.Context(), absent(t), folder)
	if err != nil || db != "file://"+folder || !strings.Contains(said, module+"@"+version+", last changed 2020-01-02") {
		t.Errorf("%q, %q, %v", db, said, err)
	}
	for name, want := range map[string]string{
		"ID/GO-1999-0001.json": one,
		"ID/GO-1999-0002.json": two,
		"index/db.json":        `{"modified":"2020-01-02T03:04:05Z"}`,
		"index/vulns.json":     `[{"id":"GO-1999-0001","modified":"2020-01-02T03:04:05Z","aliases":["CVE-1999-1"]},{"id":"GO-1999-0002","modified":"2020-01-02T03:04:05Z"}]`,
		"index/modules.json": `[{"path":"example.com/another","vulns":[{"id":"GO-1999-0002","modified":"2020-01-02T03:04:05Z"}]},` +
			`{"path":"example.com/old","vulns":[{"id":"GO-1999-0001","modified":"2020-01-02T03:04:05Z"},{"id":"GO-1999-0002","modified":"2020-01-02T03:04:05Z"}]}]`,
	} {
		if got, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name))); err != nil || string(got) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "ID", "GO-1998-0001.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an entry of an earlier run is still there: %v", err)
	}
}

// A database that is not whole must not pass for one in which nothing was found.
func TestNoDatabase(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no module":    nil,
		"no entries":   {"data/osv/README": ""},
		"no JSON":      {"data/osv/GO-1999-0001.json": one[:100]},
		"another name": {"data/osv/GO-1999-0007.json": one},
		"no URL":       {"data/osv/GO-1999-0001.json": strings.Replace(one, about, "", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			modules := map[string]map[string]string{}
			if files != nil {
				modules[module+"@"+version] = files
			}
			proxy(t, modules)
			db, said, err := find(t.Context(), absent(t), t.TempDir())
			if err == nil || db != "" || said != "" {
				t.Errorf("%q, %q, %v", db, said, err)
			} else if strings.Contains(err.Error(), nowhere) != (files == nil) {
				t.Errorf("what .ci/run takes for no database at all: %v", err)
			}
		})
	}
}

// TestGovulncheck wants govulncheck to find, with a database made here, what a module calls.
// `make vuln`, which builds govulncheck, sets GOVULNCHECK.
func TestGovulncheck(t *testing.T) {
	binary := os.Getenv("GOVULNCHECK")
	if binary == "" {
		t.Skip("GOVULNCHECK does not name the program: make vuln runs this")
	}
	old := map[string]string{"old.go": "package old\n\nfunc Bad() {}\n\nfunc Good() {}\n"}
	proxy(t, map[string]map[string]string{
		module + "@" + version:   {"data/osv/GO-1999-0001.json": one, "data/osv/GO-1999-0002.json": two},
		"example.com/old@v1.0.0": old,
		"example.com/old@v1.1.0": old,
	})
	db, _, err := find(t.Context(), absent(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		version, call string
		found         bool
	}{{"v1.0.0", "Bad", true}, {"v1.0.0", "Good", false}, {"v1.1.0", "Bad", false}} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "go.mod"), "module example.com/user\n\ngo 1.26\n\nrequire example.com/old "+c.version+"\n")
		write(t, filepath.Join(dir, "main.go"), "package main\n\nimport \"example.com/old\"\n\nfunc main() { old."+c.call+"() }\n")
		cmd := exec.CommandContext(t.Context(), binary, "-db", db, "./...")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if found := strings.Contains(string(out), "Vulnerability #1: GO-1999-0001"); found != c.found || found != (err != nil) {
			t.Errorf("a call of %s at %s: want a finding: %v, got %v\n%s", c.call, c.version, c.found, err, out)
		}
	}
}
