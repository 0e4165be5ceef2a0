package lockcmd

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// URLs of scheme process are of a driver whose locks exclude within one process.
func init() {
	backend.Register("process", func(context.Context, *backend.URL) (backend.Backend, error) { return memlock.New(), nil })
}

// elect, and run with --wait-for-service, do not repeat an attempt that can never succeed.
func TestUnsupportedIsNotRepeated(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, args := range []string{"elect", "run --wait-for-service 1m"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := Program{}.newApp(null, null, null).run(ctx, append(strings.Fields(args), "--url", "process:", "x", "--", "go", "version"))
		if ctx.Err() != nil || !errors.Is(err, errors.ErrUnsupported) || codeOf(err) != ExitUnavailable {
			t.Errorf("%s: %v, %v", args, ctx.Err(), err)
		}
	}
}
