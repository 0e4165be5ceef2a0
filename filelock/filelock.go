package filelock

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

func init() { backend.Register("file", openURL) }

// Backend has the locks of a directory. It is safe for concurrent use. It opens one file for each holder and waiter,
// and on Linux one inotify instance.
type Backend struct {
	root      string // absolute
	prefix    string
	mode      fs.FileMode
	allowFUSE bool
	retention time.Duration
	inherit   bool
	host      string
	life      *call.Life

	mu      sync.Mutex
	open    map[string]*directory // by path: those in use, and some that were
	tickets map[ticketID]*ticket  // all live tickets; keeps their files from the garbage collector
	events  *watcher              // nil until the first watch
}

var _ interface {
	backend.Backend
	backend.Waiter
	backend.Inspector
	backend.Lister
	backend.Breaker
	backend.Pinger
} = (*Backend)(nil)

// Option configures a Backend.
type Option func(*Backend)

// WithPrefix separates the locks of this Backend from those under other prefixes in the same directory. It has at
// most 40 bytes.
func WithPrefix(prefix string) Option { return func(b *Backend) { b.prefix = prefix } }

// WithMode sets the permissions of directories that are created; files get the same without execution. What this user
// owns gets the permissions that it lacks. The default is 0700. Beyond permissions only fs.ModeSetgid is accepted. A
// mode that lets the group or others write also accepts a directory that they can change.
func WithMode(mode fs.FileMode) Option { return func(b *Backend) { b.mode = mode } }

// WithFUSE accepts a directory on FUSE. The caller guarantees that the file system is local and that its flock
// excludes all processes of the machine.
func WithFUSE() Option { return func(b *Backend) { b.allowFUSE = true } }

// WithInheritance passes the descriptor of each ticket on to every program that this process starts, as flock(1)
// does. If this process ends without a release, the lock stays held until all programs that have inherited the
// descriptor have ended or closed it. A release frees the lock at once, whatever programs still run. It is for a
// process that starts one program to work under the lock: each program inherits the tickets of all locks and waits.
func WithInheritance() Option { return func(b *Backend) { b.inherit = true } }

// New returns a Backend of a directory, which it creates if it is missing. On a system without flock(2), and on a
// network file system, its error matches errors.ErrUnsupported. If another user than root can change the directory
// and the mode does not share it, the error matches ErrInvalid.
func New(dir string, opts ...Option) (*Backend, error) {
	b := &Backend{
		mode:      0o700,
		retention: backend.DefaultRetention,
		life:      call.NewLife(),
		open:      map[string]*directory{},
		tickets:   map[ticketID]*ticket{},
	}
	for _, o := range opts {
		o(b)
	}
	if dir == "" || strings.ContainsRune(dir, 0) {
		return nil, backend.Invalid("directory", dir, "a path")
	}
	if len(b.prefix) > maxPrefix {
		return nil, backend.Invalid("prefix", b.prefix, fmt.Sprintf("at most %d bytes", maxPrefix))
	}
	if b.mode&^(fs.ModePerm|fs.ModeSetgid) != 0 || b.mode&0o700 != 0o700 {
		return nil, backend.Invalid("mode", fmt.Sprintf("%#o", b.mode), modeAccepted)
	}
	if err := backend.CheckRetention(b.retention); err != nil {
		return nil, err
	}
	if err := supported(); err != nil {
		return nil, err
	}
	var err error
	if b.root, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("directory %q: %w", dir, err)
	}
	b.host, _ = os.Hostname() // informative
	if err := b.prepare(); err != nil {
		return nil, err
	}
	if b.retention > 0 {
		b.life.Go(b.removeUnused)
	}
	return b, nil
}

const (
	modeAccepted = "octal permissions with rwx for the owner, such as 0700 or 2770"
	pathAccepted = "file:///absolute/directory or file:relative/directory"
)

func openURL(_ context.Context, u *backend.URL) (backend.Backend, error) {
	opts := []Option{WithPrefix(u.Params.String("prefix", "")), WithRetention(u.Params.Retention())}
	mode := u.Params.String("mode", "")
	if u.Params.Enum("allow", "", "fuse") != "" {
		opts = append(opts, WithFUSE())
	}
	if u.Params.Bool("inherit", false) {
		opts = append(opts, WithInheritance())
	}
	if err := u.Params.Err(); err != nil {
		return nil, err
	}
	if mode != "" {
		m, err := parseMode(mode)
		if err != nil {
			return nil, err
		}
		opts = append(opts, WithMode(m))
	}
	if u.User != nil {
		return nil, fmt.Errorf("%w URL: want no user and no password; accepted: file:///directory", backend.ErrInvalid)
	}
	if len(u.Hosts) > 0 && (len(u.Hosts) > 1 || u.Hosts[0] != "localhost") {
		return nil, backend.Invalid("URL host", strings.Join(u.Hosts, ","), "none: "+pathAccepted)
	}
	if u.Path == "" {
		return nil, backend.Invalid("URL path", "", pathAccepted)
	}
	return New(u.Path, opts...)
}

func parseMode(s string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(s, 8, 16)
	if err != nil || n&^0o2777 != 0 {
		return 0, backend.Invalid("URL parameter mode", s, modeAccepted)
	}
	mode := fs.FileMode(n & 0o777)
	if n&0o2000 != 0 {
		mode |= fs.ModeSetgid
	}
	return mode, nil
}

// Capabilities says what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	c := backend.Capabilities{
		Name:    "file",
		Scope:   backend.ScopeMachine,
		Loss:    backend.LossProcess,
		Order:   backend.FIFO,
		Wake:    backend.WakePoll,
		Fencing: backend.FencingRestart,
		Shared:  true,
		Permits: true,
		MinTTL:  50 * time.Millisecond,
		Caveats: []string{
			"A stopped process keeps its lock and its place in the queue.",
			"A process that is stopped in the critical section, which takes a few microseconds, blocks that lock.",
			"Deleting the files of a lock that is held breaks it.",
			"Tokens rise after a power failure or a deletion of the directory only if the clock was not set back.",
			"Each name leaves a small directory until it has not been used for the retention.",
		},
	}
	if canWatch {
		c.Wake, c.PushesLoss = backend.WakePush, true
		c.Caveats = append(c.Caveats, "If the inotify limits of the system are exhausted, waiters poll, and a holder "+
			"learns of a loss at its next renewal.")
	}
	return c
}

// begin notes an operation under way, which calls b.life.Leave at its end.
func (b *Backend) begin(ctx context.Context) error {
	if !b.life.Enter() {
		return backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		b.life.Leave()
		return backend.NotExecuted(err)
	}
	return nil
}

// Ping implements backend.Pinger. It checks that the directory is writable.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.life.Leave()
	return b.touch()
}

// Close ends waits with ErrClosed and releases the locks that this Backend still holds.
func (b *Backend) Close(context.Context) error {
	_ = b.life.Close(context.Background()) // no operation blocks after it has begun
	b.mu.Lock()
	left := slices.Collect(maps.Values(b.tickets))
	events := b.events
	b.mu.Unlock()
	for _, t := range left {
		t.discard()
	}
	if events != nil {
		events.close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.open {
		d.close()
	}
	clear(b.open)
	return nil
}
