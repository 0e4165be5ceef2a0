// Command vulndb finds a vulnerability database for govulncheck and prints its URL, for
// the flag -db. On standard error it says which one that is, and of what date.
//
//	govulncheck -db "$(go run ./hack/vulndb .bin/vulndb)" ./...
//
// It is the one at https://vuln.go.dev, or where that cannot be reached one built in the
// given folder from the module golang.org/x/vulndb, which any module proxy may serve.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	online = "https://vuln.go.dev"
	module = "golang.org/x/vulndb"
	// .ci/run looks for these words: nothing was checked, which is not that nothing was found.
	nowhere = "no vulnerability database can be had"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: vulndb FOLDER")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	db, said, err := find(ctx, online, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(1) //nolint:gocritic // the context ends with the process
	}
	fmt.Fprintln(os.Stderr, said)
	fmt.Println(db)
}

// find returns the URL of the database to use, and what to say of it.
func find(ctx context.Context, remote, folder string) (db, said string, err error) {
	at, first := reach(ctx, remote)
	if first == nil {
		return remote, describe(remote, at), nil
	}
	got, second := download(ctx)
	if second != nil {
		return "", "", fmt.Errorf("%s: %w; %w", nowhere, first, second)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return "", "", err
	}
	if err = build(got, folder); err != nil {
		return "", "", fmt.Errorf("build from %s@%s: %w", module, got.version, err)
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(folder)}
	return u.String(), describe(module+"@"+got.version, got.at), nil
}

func describe(source string, at time.Time) string {
	return fmt.Sprintf("vulnerabilities: those of %s, last changed %s", source, at.UTC().Format(time.DateOnly))
}

// index is index/db.json.
type index struct {
	Modified time.Time `json:"modified"`
}

// reach returns when the database there was last changed.
func reach(ctx context.Context, remote string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, remote+"/index/db.json.gz", nil)
	if err != nil {
		return time.Time{}, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return time.Time{}, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return time.Time{}, fmt.Errorf("%s: %s", req.URL, res.Status)
	}
	plain, err := gzip.NewReader(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", req.URL, err)
	}
	var i index
	if err := json.NewDecoder(io.LimitReader(plain, 1<<20)).Decode(&i); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", req.URL, err)
	}
	return i.Modified, nil
}

// entries are those of a version of the module.
type entries struct {
	version string
	at      time.Time // of the version: the module's entries have the zero time, which the online database replaces
	folder  string
}

// download has the go command fetch the module, by the proxy and with the checksum
// database that this machine is set to.
func download(ctx context.Context) (entries, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module+"@latest")
	cmd.Dir, cmd.Env = os.TempDir(), append(os.Environ(), "GOWORK=off") // no module's go.sum is touched
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var got struct{ Version, Info, Dir, Error string }
	if e := json.Unmarshal(out, &got); e == nil && got.Error != "" {
		return entries{}, fmt.Errorf("go mod download: %s", strings.Join(strings.Fields(got.Error), " "))
	} else if err = cmp.Or(err, e); err != nil {
		return entries{}, fmt.Errorf("go mod download: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	text, err := os.ReadFile(got.Info)
	if err != nil {
		return entries{}, err
	}
	var info struct{ Time time.Time }
	if err := json.Unmarshal(text, &info); err != nil || info.Time.IsZero() {
		return entries{}, fmt.Errorf("%s: no time of the version: %q", got.Info, text)
	}
	return entries{got.Version, info.Time, filepath.Join(got.Dir, "data", "osv")}, nil
}

// vuln is an entry, in index/vulns.json and, without its aliases, in index/modules.json.
// It has no version that fixes it: govulncheck then reads the ranges of the entry.
type vuln struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Aliases  []string  `json:"aliases,omitempty"`
}

type affected struct {
	Path  string `json:"path"`
	Vulns []vuln `json:"vulns"`
}

// build writes the entries, one OSV file each, as the database that
// https://go.dev/doc/security/vuln/database describes, in place of what folder holds.
func build(from entries, folder string) error {
	names, err := filepath.Glob(filepath.Join(from.folder, "*.json"))
	if err != nil || len(names) == 0 {
		return cmp.Or(err, errors.New("no entries in data/osv"))
	}
	for _, sub := range []string{"ID", "index"} {
		if err := errors.Join(os.RemoveAll(filepath.Join(folder, sub)), os.MkdirAll(filepath.Join(folder, sub), 0o750)); err != nil {
			return err
		}
	}
	var vulns []vuln
	modules := map[string]*affected{}
	for _, name := range names { // Glob sorts them
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var e struct {
			ID       string
			Aliases  []string
			Affected []struct{ Package struct{ Name string } }
			Specific struct{ URL string } `json:"database_specific"`
		}
		if err := json.Unmarshal(text, &e); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		// without the URL govulncheck would end in the middle of its report, as if all were well
		if e.ID+".json" != filepath.Base(name) || e.Specific.URL == "" {
			return fmt.Errorf("%s is no whole entry: id %q, url %q", filepath.Base(name), e.ID, e.Specific.URL)
		}
		vulns = append(vulns, vuln{e.ID, from.at, e.Aliases})
		for _, a := range e.Affected {
			path := a.Package.Name
			if modules[path] == nil {
				modules[path] = &affected{Path: path}
			}
			m := modules[path]
			if n := len(m.Vulns); n == 0 || m.Vulns[n-1].ID != e.ID { // an entry may name a module more than once
				m.Vulns = append(m.Vulns, vuln{ID: e.ID, Modified: from.at})
			}
		}
		if err := os.WriteFile(filepath.Join(folder, "ID", filepath.Base(name)), text, 0o600); err != nil {
			return err
		}
	}
	var sorted []*affected
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		sorted = append(sorted, modules[path])
	}
	for name, content := range map[string]any{"db": index{from.at}, "vulns": vulns, "modules": sorted} {
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "index", name+".json"), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
