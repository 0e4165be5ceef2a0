package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
)

// The request that frees a lock has the values of the context that Unlock was given, and
// none of its end; it ends when Close gives up.
func TestContextOfRelease(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		cancel()

		l := mustLock(t, c.Mutex("a"))
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op == "release" && (ctx.Value(key{}) != "v" || ctx.Err() != nil) {
				t.Errorf("the context of a release: want the values of Unlock's without its end, got %v, %v", ctx.Value(key{}), ctx.Err())
			}
			return nil, true
		}
		if err := l.Unlock(ctx); err != nil {
			t.Fatal(err)
		}

		l = mustLock(t, c.Mutex("b", lock.WithTTL(8*time.Second)))
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op == "release" {
				<-ctx.Done()
				return errNet, false
			}
			return nil, true
		}
		begun := time.Now()
		unlocked := make(chan time.Duration, 1)
		go func() {
			_ = l.Unlock(context.Background()) // says that it was not acknowledged
			unlocked <- time.Since(begun)
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		_ = c.Close(ctx) // says that cleaning up was under way
		if took, most := <-unlocked, 3*time.Second; took > most {
			t.Errorf("an Unlock that Close has given up on took %v, want at most %v", took, most)
		}
	})
}
