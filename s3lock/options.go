package s3lock

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/interlock-go/lock/backend"
)

type options struct {
	prefix        string
	timeout, poll time.Duration
	encryption    Encryption
	acl           string
}

// Encryption is the server-side encryption of the objects that the driver writes. The zero value leaves it to the
// bucket.
type Encryption struct {
	// Algorithm is "AES256", "aws:kms" or "aws:kms:dsse".
	Algorithm string
	// KMSKeyID is the id, the ARN or the alias of a key of KMS; "" is the key that AWS manages. It needs an algorithm of
	// KMS.
	KMSKeyID string
	// BucketKey makes S3 ask KMS for a key of the bucket, and not for one for each object. It needs "aws:kms".
	BucketKey bool
}

func defaults() options {
	return options{prefix: DefaultPrefix, timeout: 5 * time.Second, poll: time.Second}
}

// Option changes what New does.
type Option func(*options)

// WithPrefix sets the first part of all keys, instead of [DefaultPrefix]: 1 to 512 ASCII letters,
// digits, "-", "_" and ".", in parts separated by "/". All clients of a lock must use the same prefix.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithTimeout limits each request, from 10 ms to 1 h; the default is 5 s. It should be below a third of
// the TTL.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithPoll sets the average interval at which a waiter reads the lock, from 10 ms to 1 h; the
// default is 1 s. Of the waiters of one process for one lock only the first reads it, and after a
// change of the holder more often for a while.
func WithPoll(d time.Duration) Option { return func(o *options) { o.poll = d } }

// WithEncryption sets the server-side encryption of all objects.
func WithEncryption(e Encryption) Option { return func(o *options) { o.encryption = e } }

// WithACL sets the canned ACL of all objects, such as "bucket-owner-full-control".
func WithACL(acl string) Option { return func(o *options) { o.acl = acl } }

func (o *options) check() error {
	if err := checkPrefix(o.prefix); err != nil {
		return err
	}
	if err := o.encryption.check(); err != nil {
		return err
	}
	if acls := (types.ObjectCannedACL)("").Values(); o.acl != "" && !slices.Contains(acls, types.ObjectCannedACL(o.acl)) {
		return backend.Invalid("acl", o.acl, fmt.Sprint("one of ", acls))
	}
	for _, d := range []struct {
		name        string
		value, from time.Duration
		to          time.Duration
		accepted    string
	}{
		{"timeout", o.timeout, 10 * time.Millisecond, time.Hour, "10ms to 1h"},
		{"poll", o.poll, 10 * time.Millisecond, time.Hour, "10ms to 1h"},
	} {
		if d.value < d.from || d.value > d.to {
			return backend.Invalid(d.name, d.value, d.accepted)
		}
	}
	return nil
}

func (e Encryption) check() error {
	kms := e.Algorithm == string(types.ServerSideEncryptionAwsKms)
	switch {
	case e.Algorithm != "" && !kms && e.Algorithm != string(types.ServerSideEncryptionAes256) &&
		e.Algorithm != string(types.ServerSideEncryptionAwsKmsDsse):
		return backend.Invalid("sse", e.Algorithm, "AES256, aws:kms or aws:kms:dsse")
	case e.KMSKeyID != "" && !strings.HasPrefix(e.Algorithm, "aws:kms"):
		return backend.Invalid("sse_kms_key_id", e.KMSKeyID, "sse=aws:kms or sse=aws:kms:dsse beside it")
	case strings.ContainsFunc(e.KMSKeyID, func(r rune) bool { return r <= ' ' || r > '~' }):
		return backend.Invalid("sse_kms_key_id", e.KMSKeyID, "the id, ARN or alias of a key, in ASCII without spaces")
	case e.BucketKey && !kms:
		return backend.Invalid("sse_bucket_key", e.BucketKey, "sse=aws:kms beside it")
	}
	return nil
}

// set sets the encryption of a write.
func (e Encryption) set(in *s3.PutObjectInput) {
	in.ServerSideEncryption = types.ServerSideEncryption(e.Algorithm)
	if e.KMSKeyID != "" {
		in.SSEKMSKeyId = &e.KMSKeyID
	}
	if e.BucketKey {
		in.BucketKeyEnabled = &e.BucketKey
	}
}

var (
	bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$`)
	regionName = regexp.MustCompile(`^[A-Za-z0-9-]{1,63}$`)
)
