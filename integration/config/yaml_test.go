// Package config tests that lock.Config decodes from YAML.
package config

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/memlock"
)

func TestYAML(t *testing.T) {
	var file struct{ Lock lock.Config }
	const text = `
lock:
  url: mem:?ttl=25s
  ttl: 1m
  renew: false
  min_hold: 2s
  metadata: node 7
`
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	const want = "url=mem: ttl=1m renew=false min_hold=2s metadata=node 7"
	if got := file.Lock.String(); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	c, err := lock.OpenConfig(t.Context(), file.Lock)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Mutex("k").TryLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := c.Inspect(t.Context(), "k")
	if err != nil || info.Holder == nil || info.Holder.Metadata != "node 7" {
		t.Fatal(info, err)
	}
}

func TestUnknownKey(t *testing.T) {
	var file struct{ Lock lock.Config }
	err := yaml.Unmarshal([]byte("lock:\n  url: 'mem:'\n  wiat: 1s\n"), &file)
	if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), `"wiat"`) || !strings.Contains(err.Error(), "wait, min_hold") {
		t.Errorf("got %v", err)
	}
}
