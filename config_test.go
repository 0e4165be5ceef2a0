package lock_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/memlock"
)

func decode(t *testing.T, s string) (cfg lock.Config) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestOpenConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			config string
			opts   []lock.Option
			left   time.Duration // of the lease after 20 s
		}{
			{`{"url": "mem:?ttl=25s&renew=false"}`, nil, 5 * time.Second},
			{`{"url": "mem:?ttl=25s&renew=false", "ttl": "1m"}`, nil, 40 * time.Second},
			{`{"url": "mem:", "ttl": "1m", "renew": false}`, nil, 40 * time.Second},
			{`{"url": "mem:", "ttl": "1m", "renew": false}`, []lock.Option{lock.WithTTL(2 * time.Minute)}, 100 * time.Second},
			{`{"url": "mem:?renew=false", "ttl": "1m", "renew": true}`, nil, time.Minute},
		} {
			c, err := lock.OpenConfig(t.Context(), decode(t, tt.config), tt.opts...)
			if err != nil {
				t.Fatal(tt.config, err)
			}
			l := mustLock(t, c.Mutex("k"))
			time.Sleep(20*time.Second + time.Millisecond) // a third of a minute is when a renewal is due
			if left := time.Until(l.Expires()); left > tt.left || left < tt.left-2*time.Second {
				t.Errorf("%s: %v left, want %v less a margin", tt.config, left, tt.left)
			}
			_ = c.Close(t.Context())
		}
	})
}

// A key that is none of the fields is refused with those that are, and its value does not show.
func TestConfigRefusesUnknownKeys(t *testing.T) {
	var cfg lock.Config
	err := json.Unmarshal([]byte(`{"url": "mem:", "tll": "secret"}`), &cfg)
	wantErr(t, "an unknown key", err, lock.ErrInvalid)
	if text := err.Error(); !strings.Contains(text, `"tll"`) || !strings.Contains(text, "url, ttl, renew, wait") || strings.Contains(text, "secret") {
		t.Errorf("got %q", text)
	}
	cfg = lock.Config{TTL: "1m"}
	if err := json.Unmarshal([]byte(`{"url": "mem:"}`), &cfg); err != nil || cfg.TTL != "1m" {
		t.Errorf("a key that is missing: got %+v, %v, want the value that was there", cfg, err)
	}
}

func TestOpenConfigRefuses(t *testing.T) {
	for config, want := range map[string][]string{
		`{}`:                                     {"config url", "redis://localhost"},
		`{"url": "mem:", "ttl": "30x"}`:          {"config ttl", `"30x"`, "such as 500ms"},
		`{"url": "mem:", "ttl": "-1s"}`:          {"config ttl", `"-1s"`, "positive"},
		`{"url": "mem:", "min_hold": "soon"}`:    {"config min_hold", `"soon"`, "positive"},
		`{"url": "mem:", "ttl": "1ns"}`:          {"ttl", "1ns", "from 50ms to 8760h"},
		`{"url": "mem:", "metadata": "a\u0000"}`: {"metadata", "control characters"},
	} {
		_, err := lock.OpenConfig(t.Context(), decode(t, config))
		wantErr(t, config, err, lock.ErrInvalid)
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", config, err, w)
			}
		}
	}
}

func TestConfigShowsNoPassword(t *testing.T) {
	for url, want := range map[string]string{
		"redis://app:hunter2@h:1,i:2/0?sentinel_password=hunter2": "url=redis://app@h:1,i:2/0 ttl=1s",
		"redis://app:hunter2/@h":                                  "url=(malformed) ttl=1s",
		"file:///var/locks":                                       "url=file:///var/locks ttl=1s",
		"mem:":                                                    "url=mem: ttl=1s",
	} {
		cfg := lock.Config{URL: url, TTL: "1s"}
		if got := cfg.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "cfg", cfg, "ptr", &cfg)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "cfg", cfg, "ptr", &cfg)
		shown := fmt.Sprintf("%v %+v %#v %s %v %+v", cfg, cfg, cfg, cfg, &cfg, struct{ C lock.Config }{cfg}) + log.String()
		if strings.Contains(shown, "hunter2") {
			t.Errorf("a password is shown: %s", shown)
		}
	}
}
