package natslock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/backend"
)

// leastMaxMsgSize has room for a record with the longest metadata, and its headers.
const leastMaxMsgSize = 8 << 10

// setting is a setting of a bucket on which the protocol depends.
type setting struct {
	name     string // in the JSON of the configuration
	accepted string
	ok       func(*jetstream.StreamConfig) bool
}

func (b *Backend) settings() []setting {
	want := b.wanted()
	return []setting{
		{"mirror", "none", func(c *jetstream.StreamConfig) bool { return c.Mirror == nil }},
		{"sources", "none", func(c *jetstream.StreamConfig) bool { return len(c.Sources) == 0 }},
		{"allow_msg_counter", "false", func(c *jetstream.StreamConfig) bool { return !c.AllowMsgCounter }},
		{"allow_msg_schedules", "false", func(c *jetstream.StreamConfig) bool { return !c.AllowMsgSchedules }},
		{"subjects", want.Subjects[0], func(c *jetstream.StreamConfig) bool { return slices.Equal(c.Subjects, want.Subjects) }},
		{"republish", "from " + want.RePublish.Source + " to " + want.RePublish.Destination, func(c *jetstream.StreamConfig) bool {
			r := c.RePublish
			return r != nil && r.Source == want.RePublish.Source && r.Destination == want.RePublish.Destination
		}},
		{"discard", "new", func(c *jetstream.StreamConfig) bool { return c.Discard == jetstream.DiscardNew }},
		{"discard_new_per_subject", "false", func(c *jetstream.StreamConfig) bool { return !c.DiscardNewPerSubject }},
		{"retention", "limits", func(c *jetstream.StreamConfig) bool { return c.Retention == jetstream.LimitsPolicy }},
		{"max_age", "none, or 1m and more", func(c *jetstream.StreamConfig) bool { return c.MaxAge <= 0 || c.MaxAge >= time.Minute }},
		{"max_msgs", "none", func(c *jetstream.StreamConfig) bool { return c.MaxMsgs <= 0 }},
		{"max_bytes", b.acceptedBytes(), func(c *jetstream.StreamConfig) bool {
			return c.MaxBytes <= 0 || b.opt.maxBytes > 0 && c.MaxBytes >= b.opt.maxBytes
		}},
		{"max_msg_size", fmt.Sprintf("none, or %d and more", leastMaxMsgSize), func(c *jetstream.StreamConfig) bool {
			return c.MaxMsgSize <= 0 || c.MaxMsgSize >= leastMaxMsgSize
		}},
		{"no_ack", "false", func(c *jetstream.StreamConfig) bool { return !c.NoAck }},
		{"sealed", "false", func(c *jetstream.StreamConfig) bool { return !c.Sealed }},
		{"subject_transform", "none", func(c *jetstream.StreamConfig) bool { return c.SubjectTransform == nil }},
		{"persist_mode", "default", func(c *jetstream.StreamConfig) bool { return c.PersistMode == jetstream.DefaultPersistMode }},
		{"template_owner", "none", func(c *jetstream.StreamConfig) bool { return c.Template == "" }},
	}
}

func (b *Backend) acceptedBytes() string {
	if b.opt.maxBytes == 0 {
		return "none, or the URL parameter max_bytes"
	}
	return fmt.Sprintf("none, or at least %d", b.opt.maxBytes)
}

// harmless are the settings that may have any value. Storage and num_replicas decide what is declared.
var harmless = []string{
	"name", "description", "max_consumers", "max_msgs_per_subject", "storage", "num_replicas", "duplicate_window", "placement",
	"compression", "first_seq", "allow_direct", "mirror_direct", "deny_delete", "deny_purge", "allow_rollup_hdrs",
	"consumer_limits", "metadata", "allow_msg_ttl", "subject_delete_marker_ttl", "allow_atomic", "allow_batched",
}

// verify refuses a bucket that the protocol cannot use, and one with a setting that is not known here and not at zero.
func (b *Backend) verify(config json.RawMessage) error {
	unknown := map[string]json.RawMessage{}
	for _, into := range []any{&b.config, &unknown} {
		if err := json.Unmarshal(config, into); err != nil {
			return fmt.Errorf("nats: settings of the bucket %s: %w", b.bucket, err)
		}
	}
	for _, s := range b.settings() {
		if !s.ok(&b.config) {
			return b.bad(s.name, text(unknown[s.name]), s.accepted)
		}
		delete(unknown, s.name)
	}
	for _, name := range harmless {
		delete(unknown, name)
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		if value := unknown[name]; !slices.Contains([]string{"null", "false", "0", `""`, "[]", "{}"}, string(value)) {
			return b.bad(name, text(value), "none: this version of the driver does not know the setting")
		}
	}
	return b.verifyServer(b.config.Replicas, b.config.MaxBytes)
}

// text is the value of a setting in an error.
func text(value json.RawMessage) string {
	if len(value) == 0 {
		return "none"
	}
	return string(bytes.Trim(value, `"`))
}

func (b *Backend) bad(setting string, value any, accepted string) error {
	return backend.Invalid("bucket "+b.bucket+": "+setting, value, accepted)
}
