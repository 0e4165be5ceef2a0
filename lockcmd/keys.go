package lockcmd

import (
	"context"
	"os"
)

// untilKey returns a context that ends when the user types q on the terminal in. stop
// restores the mode of the terminal. If in is no terminal, no key ends the context.
func untilKey(ctx context.Context, in *os.File) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	restore, ok := keyMode(in)
	if !ok {
		return ctx, cancel
	}
	go func() { // continues until the process ends, if no key comes
		key := make([]byte, 1)
		for {
			n, err := in.Read(key)
			if err != nil || n == 1 && (key[0] == 'q' || key[0] == 'Q') {
				break
			}
		}
		cancel()
	}()
	return ctx, func() {
		cancel()
		restore()
	}
}
