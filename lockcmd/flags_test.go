package lockcmd

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The time of all requests counts for --timeout, the time between them does not.
func TestServiceLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := serviceLimit{limit: positive(time.Second)}
		if err := l.within(t.Context(), func(context.Context) error {
			time.Sleep(400 * time.Millisecond) // by the clock of the test
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // a user answers
		began := time.Now()
		err := l.within(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(began); took != 600*time.Millisecond || codeOf(err) != ExitUnavailable || !strings.Contains(err.Error(), "no answer within --timeout 1s") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
