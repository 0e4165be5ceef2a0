package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readme is the program of README.md, without a service, and the version that it uses.
const readme = `package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/memlock"
)

func main() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem://app?ttl=30s")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	err = lock.Do(ctx, c.Mutex("orders/42"), func(ctx context.Context) error {
		fmt.Println("shipped")
		return nil
	}, lock.WithWait(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lock.Version())
}
`

func TestOutsider(t *testing.T) {
	repository := checkout(t)
	run(t, repository, append(os.Environ(), "SKIP_TESTS=1", "GOWORK="), "go", "run", "./hack/release", version)
	u := newOutsider(t, proxy(t, repository))

	t.Run("core", func(t *testing.T) {
		dir := u.module(t, map[string]string{"main.go": readme})
		run(t, dir, u.env, "go", "get", root+"@"+version)
		if out := run(t, dir, u.env, "go", "run", "."); out != "shipped\n"+version+"\n" {
			t.Errorf("the program printed %q", out)
		}
		if out := run(t, dir, u.env, "go", "list", "-m", "all"); len(strings.Fields(out)) != 3 {
			t.Errorf("the core needs more than itself:\n%s", out)
		}
	})
	for _, driver := range []string{"redislock", "etcdlock", "zklock", "pglock", "mysqllock", "memcachelock", "natslock", "s3lock", "otellock",
		"adapters/certmagiclock", "adapters/gocronlock", "adapters/gooselock"} {
		t.Run(driver, func(t *testing.T) {
			dir := u.module(t, map[string]string{"main.go": "package main\n\nimport _ \"" + root + "/" + driver + "\"\n\nfunc main() {}\n"})
			run(t, dir, u.env, "go", "get", root+"/"+driver+"@"+version)
			run(t, dir, u.env, "go", "build", "-o", os.DevNull, ".")
			others := run(t, dir, u.env, "go", "list", "-m", "-f", "{{if .Replace}}{{.Path}}{{end}}", "all")
			if strings.TrimSpace(others) != "" {
				t.Errorf("replaced: %s", others)
			}
		})
	}
	t.Run("driver of a third party", func(t *testing.T) {
		example := filepath.Join(repository, "examples", "toydriver")
		files := map[string]string{}
		for _, size := range []string{"plain", "queued"} {
			sources, err := filepath.Glob(filepath.Join(example, size, "*.go"))
			if err != nil || len(sources) < 3 {
				t.Fatalf("%s has the sources %q, %v", size, sources, err)
			}
			for _, path := range sources {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				files[size+"/"+filepath.Base(path)] = strings.ReplaceAll(string(text), root+"/examples/toydriver", "example.org/app")
			}
		}
		dir := u.module(t, files)
		run(t, dir, u.env, "go", "get", root+"@"+version, root+"/conformance@"+version)
		run(t, dir, u.env, "go", "test", "-count=1", "-run", "^TestService$|^TestConformance$/^exclusion$", "./...")
	})
	t.Run("commands", func(t *testing.T) {
		for _, name := range []string{"lockctl", "lockbench"} {
			run(t, repository, u.env, "go", "install", root+"/cmd/"+name+"@"+version)
			out := run(t, repository, u.env, filepath.Join(u.bin, name), "version")
			if !strings.HasPrefix(out, name+" "+version+",") {
				t.Errorf("%s says that it is %q", name, out)
			}
		}
		out := run(t, repository, u.env, filepath.Join(u.bin, "lockctl"), "run", "nightly", "--", "sh", "-c", "echo token $LOCK_TOKEN")
		if !strings.HasPrefix(out, "token ") {
			t.Errorf("a command under a lock printed %q", out)
		}
	})
	t.Run("size of lockctl", func(t *testing.T) { // built as by make lockctl
		run(t, repository, u.env, "go", "install", "-tags", "grpcnotrace", "-ldflags", "-s -w", root+"/cmd/lockctl@"+version)
		binary, err := os.Stat(filepath.Join(u.bin, "lockctl"))
		if err != nil {
			t.Fatal(err)
		}
		if binary.Size() > 30e6 {
			t.Errorf("lockctl has %d bytes, want at most 30 MB: does a new library need all methods? (go build -ldflags=-dumpdep, ReflectMethod)", binary.Size())
		}
	})
}

// Tags alone do not make a release.
func TestTagsWithoutRelease(t *testing.T) {
	repository := checkout(t)
	for _, tag := range []string{version, "redislock/" + version, "cmd/lockctl/" + version} {
		run(t, repository, nil, "git", "tag", tag)
	}
	u := newOutsider(t, proxy(t, repository))
	dir := u.module(t, nil)
	for want, args := range map[string][]string{
		root + "@v0.0.0":     {"get", root + "/redislock@" + version},
		"replace directives": {"install", root + "/cmd/lockctl@" + version},
	} {
		if _, stderr, err := try(t, dir, u.env, "go", args...); err == nil || !strings.Contains(stderr, want) {
			t.Errorf("go %s: %v, want an error with %q:\n%s", args[0], err, want, stderr)
		}
	}
}
