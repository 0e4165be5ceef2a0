package lockcmd

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// App is what the commands of a program share: the global flags, the streams and the
// URL. Its methods may be called concurrently once the command runs.
type App struct {
	Program  Program // with its defaults
	In       *os.File
	Out, Err *os.File

	messages *messageQueue // to Err
	global   *FlagSet      // the flags of all commands
	url      string        // --url
	json     bool
	quiet    bool
	verbose  bool
	getenv   func(string) string
}

// closeTimeout bounds how long a client waits, when it is closed, for the service to
// acknowledge the last requests.
const closeTimeout = 5 * time.Second

// URL returns the URL of the service: that of --url, else of the environment, else of
// a directory of the user, which URL creates.
func (a *App) URL() (string, error) { return chooseURL(a.url, a.getenv) }

// FlagURL returns the URL of --url, or "".
func (a *App) FlagURL() string { return a.url }

// Open opens a client of a URL. With --verbose the client logs to Err, else not at all: the
// commands write what concerns their user.
func (a *App) Open(ctx context.Context, url string, opts ...lock.Option) (*lock.Client, error) {
	log := a.Logger()
	if log != nil {
		log.Debug("opening", "url", DisplayURL(url))
	}
	return lock.Open(ctx, url, append(opts, lock.WithLogger(log))...)
}

// Close closes a client within 5 s. If that fails, Close writes a warning.
func (a *App) Close(c *lock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		a.say("warning", err.Error(), nil)
	}
}

// openShared is Open for a command that concerns other processes. It refuses locks in memory.
func (a *App) openShared(ctx context.Context, url string, opts ...lock.Option) (*lock.Client, error) {
	if u, err := backend.ParseURL(url); err == nil && u.Scheme == "mem" {
		return nil, Usagef("invalid URL %s: a lock in memory excludes no other process, and %s is one: want a URL of another scheme, such as file:///var/lib/locks",
			DisplayURL(url), a.Program.Name)
	}
	return a.Open(ctx, url, opts...)
}

// withClient opens a client of the chosen URL within the limit, and calls f with it. A
// signal ends the context of f.
func (a *App) withClient(ctx context.Context, limit *serviceLimit, f func(context.Context, *lock.Client) error) error {
	return UntilSignal(ctx, func(ctx context.Context) error {
		u, err := a.URL()
		if err != nil {
			return err
		}
		var c *lock.Client
		if err := limit.within(ctx, func(ctx context.Context) (err error) {
			c, err = a.openShared(ctx, u)
			return err
		}); err != nil {
			return err
		}
		err = f(ctx, c)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if cerr := c.Close(closing); err == nil {
			err = cerr
		}
		return err
	})
}

// query is withClient with the limit for f too.
func (a *App) query(ctx context.Context, limit *serviceLimit, f func(context.Context, *lock.Client) error) error {
	return a.withClient(ctx, limit, func(ctx context.Context, c *lock.Client) error {
		return limit.within(ctx, func(ctx context.Context) error { return f(ctx, c) })
	})
}

// completeName returns the names of held locks as candidates for the one argument.
func (a *App) completeName(ctx context.Context, args Args, word string) []string {
	if len(args.List) > 0 {
		return nil
	}
	return a.completeNames(ctx, args, word)
}

// completeNames returns the names of held locks that are not arguments yet. It skips
// names that a terminal or a shell would not show as they are.
func (a *App) completeNames(ctx context.Context, args Args, word string) []string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if a.Program.SetLogger != nil {
		a.Program.SetLogger(nil) // no messages in the terminal
	}
	u, err := a.URL()
	if err != nil {
		return nil
	}
	c, err := lock.Open(ctx, u, lock.WithLogger(nil))
	if err != nil {
		return nil
	}
	defer func() { _ = c.Close(ctx) }()
	var names []string
	held, _ := heldLocks(ctx, c, word) // the locks before an error are still useful
	for _, info := range held {
		if printable(info.Name) && !slices.Contains(args.List, info.Name) {
			names = append(names, info.Name+"\theld by "+holderText(info.Holder))
		}
	}
	return names
}
