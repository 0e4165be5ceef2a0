package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// field is a part of an answer or event.
type field struct {
	name  string
	value any
	// optional: a Service may leave it out.
	optional bool
}

// token is a fencing token. Those of the Service and of the Reference are compared by their order.
type token uint64

func answerFields(a queue.Answer) []field {
	switch {
	case a.Refused:
		return []field{{name: "refused", value: true}}
	case a.Granted:
		return []field{
			{name: "granted", value: true}, {name: "token", value: token(a.Token)}, {name: "slots", value: fmt.Sprint(a.Slots)},
			{name: "left", value: a.Left}, {name: "no place", value: a.NoPlace}, {name: "pass", value: a.Pass},
		}
	}
	return append(holderFields(a.Holder),
		field{name: "left", value: a.Left}, field{name: "no place", value: a.NoPlace}, field{name: "watch", value: a.Watch},
		field{name: "ask", value: a.Ask}, field{name: "pass", value: a.Pass})
}

func holderFields(h backend.Holder) []field {
	fields := []field{{name: "held by", value: h.Owner}, {name: "token", value: token(h.Token)}}
	if h.Metadata != "" {
		fields = append(fields, field{name: "metadata", value: h.Metadata})
	}
	if h.Foreign {
		fields = append(fields, field{name: "foreign", value: true})
	}
	if h.Left != 0 {
		fields = append(fields, field{"left of the holder", h.Left, true})
	}
	if h.Age != 0 {
		fields = append(fields, field{"age", h.Age, true})
	}
	if h.Share != (backend.Share{}) {
		fields = append(fields, field{"share", h.Share.String(), true})
	}
	if len(h.Slots) > 0 {
		fields = append(fields, field{"slots", fmt.Sprint(h.Slots), true})
	}
	return fields
}

func renewedFields(r queue.Renewed) []field {
	return []field{{name: "error", value: errorName(r.Err)}, {name: "pass", value: r.Pass}}
}

func endedFields(e queue.Ended) []field {
	if e.Err != nil {
		return []field{{name: "error", value: errorName(e.Err)}}
	}
	fields := []field{{name: "held", value: e.Held}, {name: "pass", value: e.Pass}}
	if e.Holder != nil {
		fields = append(fields, holderFields(*e.Holder)...)
	}
	return fields
}

func passedFields(p queue.Passed) []field { return []field{{name: "pass", value: p.Pass}} }

func eventFields(e Event) []field {
	switch e.Kind {
	case Granted:
		fields := []field{
			{name: "token", value: token(e.Grant.Token)},
			{name: "slots", value: fmt.Sprint(e.Grant.Slots)}, {name: "for", value: e.Grant.TTL},
		}
		if e.Grant.Expires != 0 {
			fields = append(fields, field{"expires", e.Grant.Expires, true})
		}
		return fields
	case LeaseEnds:
		return []field{{name: "left", value: e.Left}}
	}
	return nil
}

func errorName(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, backend.ErrLost):
		return "ErrLost"
	case errors.Is(err, backend.ErrInvalid):
		return "ErrInvalid"
	}
	return err.Error()
}

// comparison compares what a Service says with what the Reference says.
type comparison struct {
	rounding  time.Duration
	want, got []token // those that were compared, and are equal
}

// diff returns the fields that differ.
func (c *comparison) diff(want, got []field) (missing, wrong []field) {
	for _, w := range want {
		i := slices.IndexFunc(got, func(g field) bool { return g.name == w.name })
		if i < 0 && w.optional {
			continue
		}
		if i < 0 || !c.equalValues(w.value, got[i].value) {
			missing = append(missing, w)
		}
	}
	for _, g := range got {
		i := slices.IndexFunc(want, func(w field) bool { return g.name == w.name })
		if i < 0 || !c.equalValues(want[i].value, g.value) {
			wrong = append(wrong, g)
		}
	}
	return missing, wrong
}

func (c *comparison) equalValues(want, got any) bool {
	switch want := want.(type) {
	case time.Duration:
		got, ok := got.(time.Duration)
		return ok && (want-got).Abs() <= c.rounding
	case token:
		got, ok := got.(token)
		return ok && c.equalTokens(want, got)
	}
	return want == got
}

func (c *comparison) equalTokens(want, got token) bool {
	for i := range c.want {
		if (want < c.want[i]) != (got < c.got[i]) || (want > c.want[i]) != (got > c.got[i]) {
			return false
		}
		if want == c.want[i] {
			return true
		}
	}
	c.want, c.got = append(c.want, want), append(c.got, got)
	return true
}
