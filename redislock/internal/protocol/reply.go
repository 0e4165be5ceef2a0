package protocol

import (
	"fmt"
	"time"
)

// Statuses of replies.
const (
	No  = 0
	Yes = 1
)

// Reply is the reply of a script.
type Reply struct {
	Status int64
	US     int64 // the server's clock, in microseconds
	Rest   []any
	Sent   time.Time // before the request was sent

	Replicas int // that acknowledged it, with WAIT
}

// ParseReply parses the reply of a script that was sent at that time.
func ParseReply(v any, sent time.Time) (Reply, error) {
	l, ok := v.([]any)
	if !ok || len(l) < 2 {
		return Reply{}, fmt.Errorf("unexpected reply of a script: %.100q", fmt.Sprint(v))
	}
	r := Reply{Sent: sent, Rest: l[2:]}
	if r.Status, ok = l[0].(int64); !ok {
		return Reply{}, fmt.Errorf("unexpected status of a script: %.100q", fmt.Sprint(l[0]))
	}
	r.US = Number(l[1])
	return r, nil
}

// Str returns the i-th value after the clock as a string, "" if there is none.
func (r Reply) Str(i int) string {
	if i >= len(r.Rest) {
		return ""
	}
	s, _ := r.Rest[i].(string)
	return s
}

// Num returns the i-th value after the clock as a number, 0 if there is none.
func (r Reply) Num(i int) int64 {
	if i >= len(r.Rest) {
		return 0
	}
	return Number(r.Rest[i])
}
