package natslock

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/backend"
)

// A setting that only newer servers have is refused unless it is at zero.
func TestUnknownSetting(t *testing.T) {
	b := &Backend{bucket: "locks", opt: defaults(), conn: new(nats.Conn)}
	for value, accepted := range map[string]bool{
		"0": true, `""`: true, "false": true, "null": true, "{}": true, "[]": true, "1": false, `"async"`: false, "true": false,
	} {
		config, err := json.Marshal(b.wanted())
		if err != nil {
			t.Fatal(err)
		}
		config = append(config[:len(config)-1], `,"from_the_future":`+value+"}"...)
		err = b.verify(config) // without a connection it fails in the end
		if invalid := errors.Is(err, backend.ErrInvalid) && strings.Contains(err.Error(), "bucket locks: from_the_future "); invalid == accepted {
			t.Errorf("%s: accepted should be %v, got %v", value, accepted, err)
		}
	}
}

// Only a bucket whose first revision is the time of its creation has tokens that rise over the loss of all data.
func TestFencing(t *testing.T) {
	for _, c := range []struct {
		config jetstream.StreamConfig
		want   backend.Fencing
	}{
		{jetstream.StreamConfig{FirstSeq: 1 << 50, Replicas: 1}, backend.FencingRestart},
		{jetstream.StreamConfig{FirstSeq: 1 << 50, Replicas: 3}, backend.FencingFailover},
		{jetstream.StreamConfig{FirstSeq: 1, Replicas: 1}, backend.FencingMemory}, // of a server before 2.10
		{jetstream.StreamConfig{Replicas: 3}, backend.FencingMemory},
		{jetstream.StreamConfig{FirstSeq: 1 << 50, Storage: jetstream.MemoryStorage}, backend.FencingMemory},
	} {
		if got := (&Backend{config: c.config}).fencing(); got != c.want {
			t.Errorf("%+v: want %v, got %v", c.config, c.want, got)
		}
	}
}
