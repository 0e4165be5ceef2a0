package s3lock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// replying returns a driver whose opening is over, for a service that answers with reply, and the number of its
// requests. The client of the application repeats what fails.
func replying(t *testing.T, reply http.HandlerFunc) (*Backend, *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		requests.Add(1)
		reply(w, r)
	}))
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	client := s3.New(s3.Options{
		BaseEndpoint: &server.URL, Region: anyRegion, UsePathStyle: true, HTTPClient: &http.Client{Transport: transport},
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond }),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	})
	return newBackend(client, nil, "bucket", defaults()), &requests
}

// refusing answers with an error of S3.
func refusing(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>because</Message></Error>", code)
	}
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// Each reply to a write is what the service certainly has done, and the client never repeats the request.
func TestWriteErrors(t *testing.T) {
	const changed, notExecuted, unknown = "changed", "not executed", "unknown"
	for _, tt := range []struct {
		reply http.HandlerFunc
		want  string
	}{
		{refusing(412, "PreconditionFailed"), changed},
		{refusing(412, ""), changed},
		{refusing(409, "ConditionalRequestConflict"), changed},
		{refusing(404, "NoSuchKey"), changed},
		{refusing(404, "NoSuchBucket"), notExecuted},
		{refusing(409, "OperationAborted"), notExecuted},
		{refusing(403, "AccessDenied"), notExecuted},
		{refusing(301, "PermanentRedirect"), notExecuted},
		{refusing(429, "SlowDown"), notExecuted},
		{refusing(501, "NotImplemented"), notExecuted},
		{refusing(408, "RequestTimeout"), unknown},
		{refusing(500, "InternalError"), unknown},
		{refusing(503, "SlowDown"), unknown},
		{hangUp, unknown},
	} {
		b, requests := replying(t, tt.reply)
		_, err := store{b}.Write(t.Context(), "a", []byte("{}"), `"1"`, 0)
		got := notExecuted
		switch {
		case errors.Is(err, record.ErrChanged):
			got = changed
		case err == nil:
			got = "executed"
		case backend.OutcomeUnknown(err):
			got = unknown
		}
		if n := requests.Load(); got != tt.want || n != 1 {
			t.Errorf("want %q after 1 request, got %q after %d: %v", tt.want, got, n, err)
		}
	}
}

// A write always has a condition.
func TestConditions(t *testing.T) {
	b, _ := replying(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", r.Header.Get("If-Match")+"|"+r.Header.Get("If-None-Match"))
	})
	for version, want := range map[string]string{"": "|*", `"1"`: `"1"|`} {
		if got, err := (store{b}).Write(t.Context(), "a", nil, version, 0); got != want || err != nil {
			t.Errorf("version %q: want the conditions %q, got %q, %v", version, want, got, err)
		}
	}
}

// A read is bounded.
func TestRead(t *testing.T) {
	b, _ := replying(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"1"`)
		_, _ = io.WriteString(w, strings.Repeat("x", 10*maxValue))
	})
	item, err := store{b}.Read(t.Context(), "a")
	if err != nil || len(item.Value) != maxValue || item.Version != `"1"` {
		t.Errorf("want %d bytes, got %d, %v", maxValue, len(item.Value), err)
	}
}

// For how long an object was kept is the difference of two times of the store itself. The header Date may be that of a
// proxy with another clock.
func TestElapsed(t *testing.T) {
	written := time.Now().Add(-5 * time.Hour).Truncate(time.Second)
	b, _ := replying(t, func(w http.ResponseWriter, r *http.Request) {
		at := written
		if strings.HasSuffix(r.URL.Path, clockName) {
			at = at.Add(time.Minute)
		}
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.Header().Set("Last-Modified", at.UTC().Format(http.TimeFormat))
	})
	item, err := store{b}.Read(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := (store{b}).Elapsed(t.Context(), "a", item); err != nil || d != 59*time.Second { // whole seconds
		t.Errorf("want 59s, got %v, %v", d, err)
	}
}

func TestReadErrors(t *testing.T) {
	b, _ := replying(t, refusing(404, "NoSuchKey"))
	if item, err := (store{b}).Read(t.Context(), "a"); err != nil || item.Version != "" {
		t.Errorf("an absent object: got %v, %v", item, err)
	}
	b, _ = replying(t, refusing(404, "NoSuchBucket"))
	if _, err := (store{b}).Read(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Errorf("an absent bucket: %v", err)
	}
	b, _ = replying(t, refusing(403, "AccessDenied"))
	if _, err := (store{b}).Read(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "s3:ListBucket") {
		t.Errorf("without permission: %v", err)
	}
	b, _ = replying(t, func(http.ResponseWriter, *http.Request) {})
	if _, err := (store{b}).Read(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "ETag") {
		t.Errorf("without a version: %v", err)
	}
}

// A request is repeated once if the service has refused it because of the clock of this machine.
func TestWrongClock(t *testing.T) {
	first := true
	b, requests := replying(t, func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			w.Header().Set("Date", time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat))
			refusing(403, "RequestTimeTooSkewed")(w, r)
			return
		}
		w.Header().Set("ETag", r.Header.Get("X-Amz-Date"))
	})
	signed, err := store{b}.Write(t.Context(), "a", nil, "", 0)
	if at, _ := time.Parse("20060102T150405Z", signed); err != nil || time.Until(at) < 23*time.Hour || requests.Load() != 2 {
		t.Errorf("want the second of 2 requests signed with the clock of the service, got %q after %d, %v", signed, requests.Load(), err)
	}
}

// A store that does not apply the conditions is refused, with the condition in the error.
func TestProbe(t *testing.T) {
	for want, reply := range map[string]http.HandlerFunc{
		"ignores the condition If-None-Match": func(http.ResponseWriter, *http.Request) {},
		"ignores the condition If-Match": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				refusing(412, "PreconditionFailed")(w, r)
			}
		},
		"does not implement": refusing(501, "NotImplemented"),
	} {
		b, _ := replying(t, reply)
		if err := b.probe(t.Context()); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrInvalid with %q, got %v", want, err)
		}
	}
	b, requests := replying(t, refusing(412, "PreconditionFailed"))
	if err := b.probe(t.Context()); err != nil || requests.Load() != 2 {
		t.Errorf("want a store with both conditions accepted after 2 requests, got %d, %v", requests.Load(), err)
	}
}
