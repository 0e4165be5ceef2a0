package nats_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// kind is what the driver does with a bucket that has a setting.
type kind string

const (
	required kind = "required"
	refused  kind = "refused"
	harmless kind = "harmless"
)

// setting is one setting of a bucket, with a value that is not the one of a bucket that the driver creates.
type setting struct {
	name   string // in the JSON of the configuration
	kind   kind
	url    string // parameters
	change func(*jetstream.StreamConfig)
}

type config = jetstream.StreamConfig

var other = &jetstream.StreamSource{Name: "KV_other"}

var settings = []setting{
	{"name", required, "", nil}, // the name of the bucket is in the URL
	{"subjects", required, "", func(c *config) { c.Subjects = append(c.Subjects, "more") }},
	{"republish", required, "", func(c *config) { c.RePublish = nil }},
	{"republish", required, "", func(c *config) { c.RePublish.Destination = "elsewhere.>" }},
	{"discard", required, "", func(c *config) { c.Discard = jetstream.DiscardOld }},
	{"discard_new_per_subject", refused, "", func(c *config) { c.DiscardNewPerSubject = true }},
	{"retention", required, "", func(c *config) { c.Retention = jetstream.InterestPolicy }},
	{"retention", required, "", func(c *config) { c.Retention = jetstream.WorkQueuePolicy }},
	{"max_age", refused, "", func(c *config) { c.MaxAge, c.Duplicates = time.Second, time.Second }},
	{"max_age", harmless, "", func(c *config) { c.MaxAge, c.Duplicates = time.Minute, time.Minute }},
	{"max_msgs", refused, "", func(c *config) { c.MaxMsgs = 1000 }},
	{"max_bytes", refused, "", func(c *config) { c.MaxBytes = 10 << 20 }},
	{"max_bytes", refused, "?max_bytes=20971520", func(c *config) { c.MaxBytes = 10 << 20 }},
	{"max_bytes", harmless, "?max_bytes=10485760", func(c *config) { c.MaxBytes = 10 << 20 }},
	{"max_msg_size", refused, "", func(c *config) { c.MaxMsgSize = 100 }},
	{"max_msg_size", harmless, "", func(c *config) { c.MaxMsgSize = 8 << 10 }},
	{"max_msgs_per_subject", harmless, "", func(c *config) { c.MaxMsgsPerSubject = -1 }},
	{"max_msgs_per_subject", harmless, "", func(c *config) { c.MaxMsgsPerSubject = 5 }},
	{"max_consumers", harmless, "", func(c *config) { c.MaxConsumers = 1 }},
	{"no_ack", refused, "", func(c *config) { c.NoAck = true }},
	{"mirror", refused, "", func(c *config) { c.Mirror, c.Subjects, c.RePublish.Source = other, nil, ">" }},
	{"sources", refused, "", func(c *config) { c.Sources = []*jetstream.StreamSource{other} }},
	{"sealed", refused, "", func(c *config) { c.Sealed = true }},
	{"subject_transform", refused, "", func(c *config) {
		c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: c.Subjects[0], Destination: "moved." + c.Subjects[0]}
	}},
	{"allow_msg_counter", refused, "", func(c *config) { c.AllowMsgCounter, c.Discard = true, jetstream.DiscardOld }},
	{"allow_msg_schedules", refused, "", func(c *config) { c.AllowMsgSchedules, c.AllowRollup, c.Discard = true, true, jetstream.DiscardOld }},
	{"persist_mode", refused, "", func(c *config) { c.PersistMode = jetstream.AsyncPersistMode }},
	{"template_owner", refused, "", nil}, // no server has it any more
	{"description", harmless, "", func(c *config) { c.Description = "of the application" }},
	{"storage", harmless, "", func(c *config) { c.Storage = jetstream.MemoryStorage }},
	{"num_replicas", harmless, "", nil}, // TestReplicasOfOldServer, and the suite with three nodes
	{"duplicate_window", harmless, "", func(c *config) { c.Duplicates = time.Hour }},
	{"placement", harmless, "", func(c *config) { c.Placement = &jetstream.Placement{Tags: []string{}} }},
	{"compression", harmless, "", func(c *config) { c.Compression = jetstream.S2Compression }},
	{"first_seq", harmless, "", func(c *config) { c.FirstSeq = 1 << 40 }},
	{"allow_direct", harmless, "", func(c *config) { c.AllowDirect = true }},
	{"mirror_direct", harmless, "", nil}, // a bucket without a mirror cannot have it
	{"deny_delete", harmless, "", func(c *config) { c.DenyDelete = true }},
	{"deny_purge", harmless, "", func(c *config) { c.DenyPurge = true }},
	{"allow_rollup_hdrs", harmless, "", func(c *config) { c.AllowRollup = true }},
	{"consumer_limits", harmless, "", func(c *config) { c.ConsumerLimits.MaxAckPending = 7 }},
	{"metadata", harmless, "", func(c *config) { c.Metadata = map[string]string{"team": "a"} }},
	{"allow_msg_ttl", harmless, "", func(c *config) { c.AllowMsgTTL = true }},
	{"subject_delete_marker_ttl", harmless, "", func(c *config) {
		c.AllowMsgTTL, c.AllowRollup, c.SubjectDeleteMarkerTTL, c.MaxAge = true, true, time.Second, time.Hour
	}},
	{"allow_atomic", harmless, "", func(c *config) { c.AllowAtomicPublish = true }},
	{"allow_batched", harmless, "", func(c *config) { c.AllowBatchPublish = true }},
}

// ownBucket is the configuration of a bucket of the user's own, with what the documentation demands and no more.
func ownBucket(name string) config {
	subjects := "$KV." + name + ".>"
	return config{
		Name: "KV_" + name, Subjects: []string{subjects}, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew,
		RePublish: &jetstream.RePublish{Source: subjects, Destination: "interlock." + name + ".>"},
	}
}

// A bucket with a setting that the protocol cannot use is refused, and the error names the setting. With a
// harmless one locks exclude, are renewed, wait and are listed.
func TestSettings(t *testing.T) {
	for _, flavour := range provision.NATSFlavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewNATS(t, flavour, provision.Options{})
			js := streams(t, s)
			plain := stored(t, js, ownBucket("plain"))
			for i, set := range settings {
				if set.change == nil {
					continue
				}
				name := fmt.Sprint("locks", i) // a name that was just deleted may be refused for a moment
				c := ownBucket(name)
				set.change(&c)
				if flavour == provision.NATS29 && set.name == "max_bytes" {
					set.kind = refused // by the version
				}
				made := stored(t, js, c)
				if made == nil || reflect.DeepEqual(made[set.name], plain[set.name]) && set.name != "placement" {
					if flavour != provision.NATS29 { // an old server does not know it
						t.Errorf("%s: the server has not applied it", set.name)
					}
					continue
				}
				verifySetting(t, js, s.URL()+"/"+name+set.url, name, set)
			}
		})
	}
}

// stored creates a bucket and returns its settings as the server has them, or nil if it refuses.
func stored(t *testing.T, js jetstream.JetStream, c config) map[string]any {
	t.Helper()
	sealed := c.Sealed
	c.Sealed = false
	if _, err := js.CreateStream(t.Context(), c); err != nil {
		t.Logf("the server refuses %+v: %v", c, err)
		return nil
	}
	if c.Sealed = sealed; sealed {
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	reply, err := js.Conn().Request(jetstream.DefaultAPIPrefix+"STREAM.INFO."+c.Name, nil, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Config map[string]any }
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		t.Fatal(err)
	}
	return info.Config
}

// verifySetting opens the bucket of a name, and deletes it.
func verifySetting(t *testing.T, js jetstream.JetStream, url, name string, set setting) {
	t.Helper()
	defer func() {
		if err := js.DeleteStream(t.Context(), "KV_"+name); err != nil {
			t.Fatal(err)
		}
	}()
	b, err := suite.Open(t.Context(), url)
	if set.kind != harmless {
		if err == nil {
			_ = b.Close(t.Context())
		}
		if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "bucket "+name+": "+set.name+" ") {
			t.Errorf("%s, %s: want an error with its name, got %v", set.name, set.kind, err)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: want it accepted, got %v", set.name, err)
		return
	}
	if err := errors.Join(excludes(t, b), b.Close(t.Context())); err != nil {
		t.Errorf("%s: %v", set.name, err)
	}
}

// excludes uses two locks as two clients do.
func excludes(t *testing.T, b backend.Backend) error {
	ctx, last := t.Context(), uint64(0)
	for i := range 6 {
		req := func(who string) backend.Request {
			return backend.Request{Key: fmt.Sprint("x", i%2), Owner: fmt.Sprint(who, i), TTL: time.Minute, Metadata: strings.Repeat("\"", backend.MaxMetadata)}
		}
		g, err := b.TryAcquire(ctx, req("holder"))
		if err != nil {
			return fmt.Errorf("a free lock: %w", err)
		}
		if _, err := b.TryAcquire(ctx, req("other")); !errors.Is(err, backend.ErrLocked) {
			return fmt.Errorf("a held lock: want ErrLocked, got %w", err)
		}
		for range 3 {
			if err := g.Renew(ctx, time.Minute); err != nil {
				return fmt.Errorf("renewal: %w", err)
			}
		}
		if _, err := b.TryAcquire(ctx, req("other")); !errors.Is(err, backend.ErrLocked) {
			return fmt.Errorf("a renewed lock: want ErrLocked, got %w", err)
		}
		listed := 0
		if err := b.(backend.Lister).List(ctx, func(backend.Info) bool { listed++; return true }); err != nil || listed != 1 {
			return fmt.Errorf("listed %d locks, %w", listed, err)
		}
		granted := make(chan error, 1)
		waits := make(chan struct{})
		go func() {
			r := req("waiter")
			r.OnWait = func(*backend.LockedError) { close(waits) }
			g, err := b.(backend.Waiter).Acquire(ctx, r)
			if err == nil {
				err = g.Release(ctx)
			}
			granted <- err
		}()
		<-waits
		if err := g.Release(ctx); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		if err := <-granted; err != nil {
			return fmt.Errorf("a waiter: %w", err)
		}
		if g.Token() <= last {
			return fmt.Errorf("token %d after %d", g.Token(), last)
		}
		last = g.Token()
	}
	return nil
}

// Each field of the configuration that the client library knows has a line in the table of the documentation, and
// a test.
func TestSettingsAreDocumented(t *testing.T) {
	kinds := map[string]string{}
	for _, set := range settings {
		kinds[set.name] = string(set.kind)
	}
	page, err := os.ReadFile("../../docs/backends/nats.md")
	if err != nil {
		t.Fatal(err)
	}
	fields := reflect.TypeFor[config]()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		if kinds[name] == "" {
			t.Errorf("setting %s: no test", name)
		}
		if !strings.Contains(string(page), "| `"+name+"` | ") {
			t.Errorf("setting %s: no line in the documentation", name)
		}
	}
}
