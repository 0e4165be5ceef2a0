package measure_test

import (
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// A store is reached through its parameter endpoint.
func TestDelayedEndpoint(t *testing.T) {
	got, closeAll, err := measure.Delayed("s3://id:pa%40ss@bucket/prefix?endpoint=http%3A%2F%2F127.0.0.1%3A1&region=r", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()
	u, err := url.Parse(got)
	endpoint := u.Query().Get("endpoint")
	if err != nil || u.Host != "bucket" || u.User.String() != "id:pa%40ss" || u.Query().Get("region") != "r" ||
		!strings.HasPrefix(endpoint, "http://127.0.0.1:") || endpoint == "http://127.0.0.1:1" {
		t.Errorf("got %q: want the same URL with another endpoint", got)
	}
	for _, bad := range []string{"s3://bucket", "s3://id:topsecret@bucket?endpoint=https%3A%2F%2Fh%3A1", "s3://id:topsecret@%zz"} {
		if _, _, err := measure.Delayed(bad, time.Millisecond); err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: want an error without the secret, got %v", bad, err)
		}
	}
}

func TestDelayed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	const delay = 20 * time.Millisecond
	addr := l.Addr().String()
	got, closeAll, err := measure.Delayed("redis://user:pa%40ss@"+addr+"/3?prefix=x", delay)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()
	u, err := url.Parse(got)
	if err != nil || u.Host == addr || u.User.String() != "user:pa%40ss" || u.Path != "/3" || u.RawQuery != "prefix=x" {
		t.Fatalf("got %q: want the same URL with another host", got)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		start := time.Now()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 2*delay {
			t.Errorf("a round trip took %v, want %v or more", took, 2*delay)
		}
	}
}

func TestDelayedInput(t *testing.T) {
	for _, c := range []struct {
		url   string
		delay time.Duration
		want  string
	}{
		{"redis://h", 0, "whole milliseconds"},
		{"redis://h", 1500 * time.Microsecond, "whole milliseconds"},
		{"redis+cluster://secret@h", time.Millisecond, `scheme "redis+cluster"`},
		{"mem:", time.Millisecond, "want one of redis"},
	} {
		_, _, err := measure.Delayed(c.url, c.delay)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s, %v: got %v", c.url, c.delay, err)
		}
	}
}
