package lockcmd

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/interlock-go/lock"
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

// Open opens a client of a URL. With --verbose the client logs to Err.
func (a *App) Open(ctx context.Context, url string, opts ...lock.Option) (*lock.Client, error) {
	if log := a.Logger(); log != nil {
		log.Debug("opening", "url", DisplayURL(url))
		opts = append(opts, lock.WithLogger(log))
	}
	return lock.Open(ctx, url, opts...)
}

// Close closes a client within 5 s. If that fails, Close writes a warning.
func (a *App) Close(c *lock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		a.say("warning", err.Error(), nil)
	}
}

// withClient calls f with a client of the chosen URL. A signal ends the context of f.
func (a *App) withClient(ctx context.Context, f func(context.Context, *lock.Client) error) error {
	return UntilSignal(ctx, func(ctx context.Context) error {
		u, err := a.URL()
		if err != nil {
			return err
		}
		c, err := a.Open(ctx, u)
		if err != nil {
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
	c, err := lock.Open(ctx, u)
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
