package lazy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/filelock"
	_ "github.com/interlock-go/lock/redislock/redlock"
)

// Each driver that removes unused names takes the same values of retention, and 0 turns the removal off.
func TestRetentionInURLs(t *testing.T) {
	for _, url := range []string{
		"redis://127.0.0.1:1/0?", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?set=a&restart_delay=1m&", "postgres://u@127.0.0.1:1/db?", "mysql://u@127.0.0.1:1/db?",
		"zk://127.0.0.1:1/locks?", "file://" + t.TempDir() + "?",
	} {
		for retention, valid := range map[string]bool{"0": true, "1m": true, "59s": false, "-1h": false, "soon": false} {
			c, err := lock.Open(t.Context(), url+"lazy=true&retention="+retention)
			switch {
			case err == nil:
				_ = c.Close(context.Background()) // of a service that is down
				if !valid {
					t.Errorf("%sretention=%s is accepted", url, retention)
				}
			case valid:
				t.Errorf("%sretention=%s: %v", url, retention, err)
			case !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "retention"):
				t.Errorf("%sretention=%s: %v, want an error about that value", url, retention, err)
			}
		}
	}
}
