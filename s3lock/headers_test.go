package s3lock

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// written returns the headers of the writes of a record and of the object that asks for the time.
func written(t *testing.T, opts ...Option) (all []http.Header) {
	t.Helper()
	b, _ := replying(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			all = append(all, r.Header)
		}
		w.Header().Set("ETag", `"1"`)
	})
	for _, opt := range opts {
		opt(&b.opt)
	}
	if _, err := (store{b}).Write(t.Context(), "a", []byte("{}"), "", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := (store{b}).Elapsed(t.Context(), "a", record.Item{}); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 {
		t.Fatalf("want 2 writes, got %d", len(all))
	}
	return all
}

// A bucket with Object Lock refuses a write without a checksum. Each write has the one that all stores know, also with
// a client of the application, and none in a directory bucket, which refuses it.
func TestChecksum(t *testing.T) {
	for _, h := range written(t) {
		if got := h.Get("Content-Md5"); got != "mZFLkyvTelC5g8XnyQrpOw==" {
			t.Errorf("want the checksum of the object, got %q", got)
		}
	}
	if sum := checksum("locks--euc1-az1--x-s3", []byte("{}")); sum != nil {
		t.Errorf("want no checksum in a directory bucket, got %q", *sum)
	}
}

// Encryption and ACL are those of each write.
func TestEncryptionAndACL(t *testing.T) {
	const prefix = "X-Amz-Server-Side-Encryption"
	headers := []string{prefix, prefix + "-Aws-Kms-Key-Id", prefix + "-Bucket-Key-Enabled", "X-Amz-Acl"}
	for _, tt := range []struct {
		url  string
		want []string
	}{
		{"s3://bucket", []string{"", "", "", ""}},
		{"s3://bucket?sse=AES256", []string{"AES256", "", "", ""}},
		{"s3://bucket?sse=aws:kms&sse_kms_key_id=alias/a&sse_bucket_key=true", []string{"aws:kms", "alias/a", "true", ""}},
		{"s3://bucket?sse=aws:kms:dsse&acl=bucket-owner-full-control",
			[]string{"aws:kms:dsse", "", "", "bucket-owner-full-control"}},
	} {
		u, err := backend.ParseURL(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parse(u)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range written(t, WithEncryption(s.encryption), WithACL(s.acl)) {
			var got []string
			for _, name := range headers {
				got = append(got, h.Get(name))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: want %q, got %q", tt.url, tt.want, got)
			}
		}
	}
}

// A Lock goes on while the service has too many requests.
func TestThrottled(t *testing.T) {
	req := backend.Request{Key: "a", Owner: "owner", TTL: time.Minute}
	for _, status := range []int{429, 503} {
		for _, op := range []string{http.MethodGet, http.MethodPut} {
			refuse := true
			b, requests := replying(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == op && refuse:
					refuse = false
					refusing(status, "SlowDown")(w, r)
				case r.Method == http.MethodGet:
					refusing(404, "NoSuchKey")(w, r)
				default:
					w.Header().Set("ETag", `"1"`)
				}
			})
			if _, err := b.Acquire(t.Context(), req); err != nil {
				t.Errorf("%s refused once with %d: want a grant, got %v", op, status, err)
			}
			if n := requests.Load(); n > 4 {
				t.Errorf("%s refused once with %d: want 4 requests at most, got %d", op, status, n)
			}
		}
	}
}

// A service that has too many requests for a TTL ends a Lock, and few requests are sent meanwhile. So does its context.
func TestThrottledForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		client := s3.New(s3.Options{
			Region: anyRegion, Credentials: aws.AnonymousCredentials{},
			HTTPClient: &http.Client{Transport: roundTrip(func(*http.Request) *http.Response {
				requests++
				reply := httptest.NewRecorder()
				refusing(503, "SlowDown")(reply, nil)
				return reply.Result()
			})},
		})
		b, begin := newBackend(client, nil, "bucket", defaults()), time.Now()
		_, err := b.Acquire(t.Context(), backend.Request{Key: "a", Owner: "owner", TTL: time.Minute})
		took := time.Since(begin)
		if status(err) != 503 || took < time.Minute || took > 62*time.Second || requests < 40 || requests > 130 {
			t.Errorf("want the refusal after a minute of pauses, got %v after %v and %d requests", err, took, requests)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = b.Acquire(ctx, backend.Request{Key: "a", Owner: "owner", TTL: time.Minute})
		if !errors.Is(err, context.DeadlineExceeded) || status(err) != 503 {
			t.Errorf("refused until the end of the context: want both in the error, got %v", err)
		}
	})
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// After a request over a used connection without a reply the idle ones are not used again, also those of a client
// with the transport of the SDK.
func TestIdleConnectionsAreDropped(t *testing.T) {
	const connections = 8
	for what, h := range map[string]aws.HTTPClient{
		"the SDK": awshttp.NewBuildableClient(), "the application": &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}},
	} {
		var silent sync.Map
		open := make(chan struct{})
		together := make(chan struct{}, connections)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-open:
				if _, ok := silent.Load(r.RemoteAddr); ok {
					<-r.Context().Done()
					return
				}
			default: // each of the first requests has a connection of its own
				silent.Store(r.RemoteAddr, true)
				if together <- struct{}{}; len(together) == connections {
					close(open)
				}
				<-open
			}
			w.Header().Set("ETag", `"1"`)
		}))
		client := s3.New(s3.Options{
			BaseEndpoint: &server.URL, Region: anyRegion, UsePathStyle: true, HTTPClient: h, Credentials: aws.AnonymousCredentials{},
		})
		o := defaults()
		o.timeout = 2 * leastSilence
		b := newBackend(client, httpClient(client), "bucket", o)
		var all sync.WaitGroup
		for range connections {
			all.Go(func() {
				if err := b.Ping(t.Context()); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		all.Wait()
		if err := b.Ping(t.Context()); err == nil {
			t.Errorf("%s: a request over a silent connection: want an error", what)
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Errorf("%s: the next request: want a reply over a new connection, got %v", what, err)
		}
		_ = b.Close(t.Context())
		b.dropIdle()
		server.Close()
	}
}
