package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/s3lock"
)

func TestConformance(t *testing.T) {
	for _, flavour := range provision.S3Flavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewS3(t, flavour, provision.Options{})
			conformance.Run(t, harness(t, s), suite.Keep(t))
		})
	}
}

func harness(t *testing.T, s *provision.Server) conformance.Harness {
	counter := newProxy(t, s, "")
	base := with(t, through(t, s.URL(), counter.URL), "poll", "100ms")
	a := admin(t, s)
	return conformance.Harness{
		Name: s.Flavour,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, base) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, strings.Replace(base, "?", "/"+prefix+"?", 1))
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			p := provision.NewProxy(t, s.Addr())
			b, err := suite.Open(ctx, with(t, through(t, base, "http://"+p.Addr()), "timeout", "1s"))
			return b, suite.Link{T: t, Proxy: p}, err
		},
		Worker:            conformance.Self(base),
		ClockWorker:       provision.ClockWorker(t, conformance.Self(base)),
		OwnGoroutines:     append([]string{"net/http/httptest.", "net/http.(*conn)", "net/http.(*connReader)"}, suite.OwnGoroutines...),
		StopServer:        func(context.Context) error { return s.Pause() },
		ResumeServer:      func(context.Context) error { return s.Resume() },
		RestartServer:     func(ctx context.Context) error { return errors.Join(s.Kill(), s.Restart(ctx)) },
		RestartKeepsLocks: true,
		ServerCommands:    func(context.Context) (int64, error) { return counter.requests.Load(), nil },
		Budget:            conformance.Budget{IdleHolderCommands: 4, IdleWaiterCommands: 16, DeadProcess: backend.MaxProvisionalTTL},
		Leftovers: func(ctx context.Context, name string) ([]string, error) {
			value, _, err := a.get(ctx, key(name))
			if err != nil || value == "" || suite.FreeRecord(value) {
				return nil, err // the object of a free lock stays
			}
			return []string{key(name)}, nil
		},
		ForeignHolder: func(ctx context.Context, name string, _ time.Duration) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return a.remove(ctx, key(name)) }, a.put(ctx, key(name), "another program", "")
		},
		DestroyState: func(ctx context.Context, name string) error { return a.remove(ctx, key(name)) },
		KeyOf:        key,
		GuardedWrite: func(ctx context.Context, name string, token uint64) error {
			return a.guardedWrite(ctx, "guarded/"+key(name), token)
		},
	}
}

func key(name string) string { return s3lock.Key(s3lock.DefaultPrefix, name) }

// bucket is the bucket of a server as another program sees it.
type bucket struct{ *s3.Client }

func admin(t *testing.T, s *provision.Server) bucket {
	t.Helper()
	c, err := provision.S3Admin(s.URL(), provision.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return bucket{c}
}

// get returns an object and its ETag, which is "" if there is none.
func (b bucket) get(ctx context.Context, key string) (value, etag string, err error) {
	out, err := b.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(provision.S3Bucket), Key: &key})
	if errors.As(err, new(*types.NoSuchKey)) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	return string(text), aws.ToString(out.ETag), err
}

// put writes an object if it has that ETag, or if there is none.
func (b bucket) put(ctx context.Context, key, value, etag string) error {
	in := &s3.PutObjectInput{Bucket: aws.String(provision.S3Bucket), Key: &key, Body: bytes.NewReader([]byte(value)), IfMatch: &etag}
	if etag == "" {
		in.IfMatch, in.IfNoneMatch = nil, aws.String("*")
	}
	_, err := b.PutObject(ctx, in)
	return err
}

func (b bucket) remove(ctx context.Context, key string) error {
	_, err := b.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(provision.S3Bucket), Key: &key})
	return err
}

// refused reports whether a write was refused because of its condition.
func refused(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "PreconditionFailed"
}

// guardedWrite writes only with a token that is not lower than the highest seen.
func (b bucket) guardedWrite(ctx context.Context, key string, token uint64) error {
	for {
		text, etag, err := b.get(ctx, key)
		if err != nil {
			return err
		}
		if etag != "" {
			highest, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return err
			}
			if token < highest {
				return fmt.Errorf("stale fencing token %d: %d was seen", token, highest)
			}
		}
		if err := b.put(ctx, key, strconv.FormatUint(token, 10), etag); !refused(err) {
			return err
		}
	}
}

func (b bucket) keys(t *testing.T) (keys []string) {
	t.Helper()
	out, err := b.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(provision.S3Bucket)})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range out.Contents {
		keys = append(keys, aws.ToString(o.Key))
	}
	return keys
}
