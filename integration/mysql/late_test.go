package mysql_test

import (
	"testing"
	"time"

	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// noEvents is a process that needs none.
type noEvents struct{ queue.Events }

func (noEvents) Interrupted(string) {}

// TestLateRequest: a request that arrives after its attempt was abandoned is refused, on a free key and on one that is held.
func TestLateRequest(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db := provision.MySQLPool(t, s, nil)
		service, err := mysqllock.NewService(db, noEvents{}, mysqllock.WithNotify(false))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = service.Close(t.Context()) })
		ask := func(a queue.Attempt) queue.Answer {
			t.Helper()
			r, err := service.Acquire(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		for _, key := range []string{"never used", "used"} {
			if key == "used" {
				ask(queue.Attempt{Request: request(key, 50*time.Millisecond)})
			}
			late := queue.Attempt{Request: request(key, time.Minute), Mode: queue.Join}
			if e := service.End(t.Context(), []queue.End{{Request: late.Request, Kind: queue.Abandon, Late: true}})[0]; e.Err != nil {
				t.Fatal(e.Err)
			}
			if r := ask(late); !r.Refused {
				t.Errorf("%s: a late request: want it refused, got %+v", key, r)
			}
			other := queue.Attempt{Request: request(key, time.Minute)}
			eventually(t, "another attempt holds the key", func() bool { return ask(other).Granted })
			if r := ask(late); !r.Refused {
				t.Errorf("%s: a late request for a held key: want it refused, got %+v", key, r)
			}
		}
	})
}
