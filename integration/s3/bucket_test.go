package s3_test

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/s3lock"
)

// Locks work in a bucket with Object Lock, with a client of the driver and with one of the application.
func TestObjectLock(t *testing.T) {
	for _, flavour := range provision.S3Flavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewS3(t, flavour, provision.Options{})
			a := admin(t, s)
			const bucket = "object-lock"
			_, err := a.CreateBucket(t.Context(), &s3.CreateBucketInput{
				Bucket: aws.String(bucket), ObjectLockEnabledForBucket: aws.Bool(true),
			})
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(s.URL())
			if err != nil {
				t.Fatal(err)
			}
			u.Host = bucket
			opened, err := lock.Open(t.Context(), u.String())
			if err != nil {
				t.Fatal(err)
			}
			b, err := s3lock.New(a.Client, bucket)
			if err != nil {
				t.Fatal(err)
			}
			own, err := lock.New(b)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []*lock.Client{opened, own} {
				l, err := c.Mutex("a", lock.WithTTL(time.Minute)).TryLock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Mutex("a").TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
					t.Errorf("want ErrLocked, got %v", err)
				}
				err = errors.Join(l.Extend(t.Context(), time.Minute), l.Unlock(t.Context()))
				if err != nil {
					t.Error(err)
				}
			}
			if err := errors.Join(opened.Close(t.Context()), own.Close(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}
