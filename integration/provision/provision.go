// Package provision gives tests real servers, and knows as the only package how: a URL from the environment, a
// container, or a server binary on the PATH, the first that serves. A test names what it needs and gets a [Server],
// or is skipped with everything that was tried; LOCK_TEST_REQUIRE turns that skip into a failure.
//
// # Environment
//
// For a flavour such as redis-8:
//
//   - LOCK_TEST_REDIS_8_URL: a running server to use. It is used as it is; a URL that does not answer, or answers
//     with another version, fails the test, because the caller asked for that very server.
//   - LOCK_TEST_REDIS_8_IMAGE: the image to run instead of the official one.
//   - LOCK_TEST_REQUIRE: "all", or a comma list of flavours ("redis-8") and services ("redis", "cluster", "tls"),
//     that must not be skipped.
//   - LOCK_TEST_ALL: not empty to run older versions and topologies too; see [LeaveOut].
//   - LOCK_TEST_REPORT: a file to append the table of tested servers to, since go test hides what a passing test
//     binary prints.
//
// Without a URL the order is: an image that Docker has already, a binary on the PATH of the right major version, an
// image to be pulled. hack/setup.sh provides them all.
//
// # Servers
//
// [Redis] returns the one server of a flavour that all tests of a process share; it needs [Main] in TestMain.
// [NewRedis] starts one for a single test, which may stop, pause, kill and restart it. Every server listens on
// loopback only and is ended with its test or its process, by pid or container id. A process ends with the test
// binary even if that is killed; a container left behind by a killed test binary is removed by the next run.
package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// startTimeout bounds the start of one server, without the pull of its image. Others may start at the same time; one
// that has ended is noticed at once.
const startTimeout = 3 * time.Minute

// kind is a product in one major version: what varies between servers, and all that a new backend adds.
type kind struct {
	flavour  string // "redis-8": names the environment variables
	extra    bool   // an older version or another product: only with LOCK_TEST_ALL
	service  string // "redis": may stand for all its flavours in LOCK_TEST_REQUIRE
	major    string // "8"; empty accepts any
	official string // image
	built    string // image made by hack/setup.sh
	binaries []string
	port     int      // in a container
	env      []string // of a local binary
	// args returns the server's arguments to listen on host and port with its files in dir.
	args func(host string, port int, dir string, o Options) []string
	// url returns what a client opens.
	url func(addr string, o Options) string
	// probe asks a server once for its version; an error means that it does not serve yet.
	probe func(ctx context.Context, url string, o Options) (version string, err error)
	// binaryVersion reads what the binary prints for --version.
	binaryVersion func(output string) string
}

// Options adapt a private server.
type Options struct {
	Args     []string      // further arguments of the server
	Files    []string      // absolute names of files that Args mention; a container gets copies under the same names
	Folder   string        // absolute name of a folder that Args mention; a container gets it itself under the same name
	TLS      *Certificates // serve TLS only, with these
	Username string        // user for URL and readiness; it must be allowed PING and INFO
	Password string        // without Username, also set as the server's password
	Creds    string        // file name of credentials for NATS, instead of Username
	Binary   bool          // only a local binary will do: servers that talk to each other share the loopback interface
	Clock    *Clock        // the wall clock of a local binary
}

// leaveOut skips the test if the kind is not tested in this run.
func (k kind) leaveOut(t testing.TB) {
	t.Helper()
	if k.extra {
		LeaveOut(t, k.flavour)
	}
}

func (k kind) variable(suffix string) string {
	return "LOCK_TEST_" + strings.ToUpper(strings.ReplaceAll(k.flavour, "-", "_")) + "_" + suffix
}

// serves reports whether version is one of k's.
func (k kind) serves(version string) bool {
	return k.major == "" || version == k.major || strings.HasPrefix(version, k.major+".")
}

// start returns a server that the caller must remove, or why none of the ways serves.
func start(k kind, o Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout+2*startTimeout)
	defer cancel()
	var tried []error
	ways := []func(context.Context, kind, Options) (*Server, error){startPresentImage, startBinary, startPulledImage}
	if o.Clock != nil {
		ways = ways[1:2]
	}
	for _, way := range ways {
		s, err := way(ctx, k, o)
		if err == nil {
			return s, nil
		}
		tried = append(tried, err)
	}
	return nil, errors.Join(tried...)
}

// launch starts one instance and returns it as a Server when it answers with the right version.
func launch(ctx context.Context, k kind, o Options, in instance, port *reservedPort, source string) (*Server, error) {
	s := &Server{Flavour: k.flavour, Source: source, kind: k, options: o, addr: port.addr(), in: in, port: port}
	register(s)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := in.start(ctx)
	if err == nil {
		err = s.WaitReady(ctx)
	}
	if err == nil && !k.serves(s.Version) {
		err = fmt.Errorf("version %s, want %s", s.Version, k.major)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", source, err), s.remove())
	}
	return s, nil
}

// newPrivate starts a server that ends with the test.
func newPrivate(t testing.TB, k kind, o Options) *Server {
	t.Helper()
	k.leaveOut(t)
	if o.Binary {
		LeaveOut(t, "replicated "+k.service)
	}
	s, err := start(k, o)
	if err != nil {
		unavailable(t, k, err)
	}
	s.endWith(t)
	record(k.flavour, s.Version, s.Source)
	return s
}

// unavailable skips the test, or fails it where LOCK_TEST_REQUIRE names the flavour or the service.
func unavailable(t testing.TB, k kind, err error) {
	t.Helper()
	reason := strings.ReplaceAll(err.Error(), "\n", "\n\t")
	record(k.flavour, "", "not tested: "+strings.ReplaceAll(err.Error(), "\n", "; "))
	if required(k.flavour, k.service) {
		t.Fatalf("LOCK_TEST_REQUIRE=%q requires %s, which is not available (hack/setup.sh provides it):\n\t%s",
			os.Getenv("LOCK_TEST_REQUIRE"), k.flavour, reason)
	}
	t.Skipf("%s is not available (hack/setup.sh provides it):\n\t%s", k.flavour, reason)
}

func required(names ...string) bool {
	for want := range strings.SplitSeq(os.Getenv("LOCK_TEST_REQUIRE"), ",") {
		want = strings.TrimSpace(want)
		if want == "all" || want != "" && slices.Contains(names, want) {
			return true
		}
	}
	return false
}
