package lock

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Config has the settings to open a client. It decodes from JSON and YAML:
//
//	lock:
//	  url: redis://app:secret@localhost:6379/0
//	  ttl: 30s
//
// Only URL is required. The other fields override the parameters of the URL, and options of
// OpenConfig override both. Durations are strings such as 500ms, 30s or 1h. A key that is none
// of the fields is an ErrInvalid.
//
// Printing or logging a Config shows no password. Encoding it does.
type Config struct {
	URL      string `json:"url" yaml:"url"`                               // as for Open
	TTL      string `json:"ttl,omitempty" yaml:"ttl,omitempty"`           // as WithTTL
	Renew    *bool  `json:"renew,omitempty" yaml:"renew,omitempty"`       // false as WithoutRenewal
	Wait     string `json:"wait,omitempty" yaml:"wait,omitempty"`         // as WithWait
	MinHold  string `json:"min_hold,omitempty" yaml:"min_hold,omitempty"` // as WithMinHold
	Metadata string `json:"metadata,omitempty" yaml:"metadata,omitempty"` // as WithMetadata

	LocalHandOff *bool `json:"local_hand_off,omitempty" yaml:"local_hand_off,omitempty"` // true as WithLocalHandOff
	Lazy         *bool `json:"lazy,omitempty" yaml:"lazy,omitempty"`                     // true as WithLazyOpen
}

// OpenConfig is Open with the settings of cfg. An ErrInvalid contains the name of the field,
// what is accepted, and its value unless that may contain a password.
func OpenConfig(ctx context.Context, cfg Config, opts ...Option) (*Client, error) {
	own, err := cfg.options()
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	return Open(ctx, cfg.URL, append(own, opts...)...)
}

func (c Config) options() ([]Option, error) {
	if c.URL == "" {
		return nil, backend.Invalid("config url", "", "the URL of a backend, such as redis://localhost:6379/0")
	}
	var out []Option
	for _, f := range []struct {
		name, value string
		option      func(time.Duration) MutexOption
	}{
		{"ttl", c.TTL, WithTTL},
		{"wait", c.Wait, func(d time.Duration) MutexOption { return WithWait(d) }},
		{"min_hold", c.MinHold, WithMinHold},
	} {
		if f.value == "" {
			continue
		}
		d, err := time.ParseDuration(f.value)
		if err != nil || d <= 0 {
			return nil, backend.Invalid("config "+f.name, f.value, "a positive duration such as 500ms, 30s or 1h")
		}
		out = append(out, f.option(d))
	}
	if c.Renew != nil {
		out = append(out, mutexOption(func(m *mutexConfig) { m.noRenewal = !*c.Renew }))
	}
	if c.Metadata != "" {
		out = append(out, WithMetadata(c.Metadata))
	}
	if c.LocalHandOff != nil {
		out = append(out, clientOption(func(o *clientConfig) { o.handOff = *c.LocalHandOff }))
	}
	if c.Lazy != nil {
		out = append(out, clientOption(func(o *clientConfig) { o.lazy = *c.Lazy }))
	}
	return out, nil
}

// settings is a Config without its methods.
type settings Config

// UnmarshalJSON implements json.Unmarshaler.
func (c *Config) UnmarshalJSON(text []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	return json.Unmarshal(text, (*settings)(c))
}

// UnmarshalYAML implements the interface of the YAML packages.
func (c *Config) UnmarshalYAML(decode func(any) error) error {
	var keys map[string]any
	if err := decode(&keys); err != nil {
		return err
	}
	if err := checkKeys(keys); err != nil {
		return err
	}
	return decode((*settings)(c))
}

func checkKeys[V any](keys map[string]V) error {
	var known []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		known = append(known, name)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(known, key) {
			return backend.Invalid("config key", key, strings.Join(known, ", "))
		}
	}
	return nil
}

// String returns the configuration without the password and the parameters of the URL.
func (c Config) String() string {
	out := []string{"url=" + shownURL(c.URL)}
	add := func(name, value string) {
		if value != "" {
			out = append(out, name+"="+value)
		}
	}
	add("ttl", c.TTL)
	if c.Renew != nil {
		add("renew", fmt.Sprint(*c.Renew))
	}
	add("wait", c.Wait)
	add("min_hold", c.MinHold)
	add("metadata", c.Metadata)
	if c.LocalHandOff != nil {
		add("local_hand_off", fmt.Sprint(*c.LocalHandOff))
	}
	if c.Lazy != nil {
		add("lazy", fmt.Sprint(*c.Lazy))
	}
	return strings.Join(out, " ")
}

// GoString returns the same as String.
func (c Config) GoString() string { return "lock.Config{" + c.String() + "}" }

// LogValue returns the same as String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// shownURL returns a URL without its secrets. Parameters may be passwords too.
func shownURL(s string) string {
	u, err := backend.ParseURL(s)
	switch {
	case err != nil:
		return "(malformed)"
	case len(u.Hosts) == 0 && !strings.HasPrefix(u.Path, "/"):
		return u.Scheme + ":" + u.Path
	}
	user := ""
	if u.User != nil {
		user = u.User.Username() + "@"
	}
	return u.Scheme + "://" + user + strings.Join(u.Hosts, ",") + u.Path
}
