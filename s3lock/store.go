package s3lock

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // S3 defines the header
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/interlock-go/lock/backend/record"
)

// maxValue is how many bytes of an object are read. A record has about 2 kB at most; what is cut
// is an object of another program.
const maxValue = 8 << 10

// store implements record.Store.
type store struct{ *Backend }

func (b store) Read(ctx context.Context, name string) (record.Item, error) {
	item, _, err := b.get(ctx, Key(b.opt.prefix, name))
	return item, err
}

// get returns an object and its user metadata. The item has no version if there is no object.
func (b *Backend) get(ctx context.Context, key string) (record.Item, map[string]string, error) {
	var item record.Item
	var meta map[string]string
	err := b.do(ctx, func(ctx context.Context, opt func(*s3.Options)) error {
		out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.bucket, Key: &key}, opt)
		if err != nil {
			return err
		}
		defer out.Body.Close()
		value, err := io.ReadAll(io.LimitReader(out.Body, maxValue))
		if err != nil {
			return err
		}
		if aws.ToString(out.ETag) == "" {
			return errors.New("the reply to GetObject has no ETag")
		}
		item, meta = record.Item{Value: value, Version: *out.ETag, Written: aws.ToTime(out.LastModified)}, out.Metadata
		return nil
	})
	switch {
	case code(err) == "NoSuchKey":
		return record.Item{}, nil, nil
	case status(err) == http.StatusForbidden:
		err = fmt.Errorf("%w (an object that is absent is reported like this without the permission s3:ListBucket)", err)
	}
	return item, meta, err
}

// Start implements record.Timer: the store dates each object.
func (b store) Start(context.Context, string, time.Duration) error { return nil }

// Elapsed implements record.Timer. It writes an object and compares the times at which the store wrote both, in whole
// seconds. The header Date of a reply may be that of a proxy.
func (b store) Elapsed(ctx context.Context, _ string, item record.Item) (time.Duration, error) {
	key := b.opt.prefix + "/" + clockName
	err := b.do(ctx, func(ctx context.Context, opt func(*s3.Options)) error {
		_, err := b.client.PutObject(ctx, b.object(key, []byte("{}")), opt)
		return err
	})
	if err != nil {
		return 0, err
	}
	now, _, err := b.get(ctx, key)
	if err != nil || now.Written.IsZero() || item.Written.IsZero() {
		return 0, err
	}
	return max(0, now.Written.Sub(item.Written)-time.Second), nil
}

func (b store) Write(ctx context.Context, name string, value []byte, version string, _ time.Duration) (string, error) {
	key := Key(b.opt.prefix, name)
	return b.put(ctx, key, value, version, metadata(key, name))
}

// object returns the request to write an object.
func (b *Backend) object(key string, value []byte) *s3.PutObjectInput {
	in := &s3.PutObjectInput{
		Bucket: &b.bucket, Key: &key, Body: bytes.NewReader(value), ContentType: aws.String("application/json"),
		ACL: types.ObjectCannedACL(b.opt.acl), ContentMD5: checksum(b.bucket, value),
	}
	b.opt.encryption.set(in)
	return in
}

// put writes an object if it has that version, or if it is absent for the version "".
func (b *Backend) put(ctx context.Context, key string, value []byte, version string, meta map[string]string) (written string, err error) {
	err = b.do(ctx, func(ctx context.Context, opt func(*s3.Options)) error {
		in := b.object(key, value)
		in.Metadata = meta
		if version == "" {
			in.IfNoneMatch = aws.String("*")
		} else {
			in.IfMatch = &version
		}
		out, err := b.client.PutObject(ctx, in, opt)
		if err == nil {
			written = aws.ToString(out.ETag)
		}
		return err
	})
	if changed(err) {
		return "", record.ErrChanged
	}
	return written, err
}

// checksum returns the Content-MD5 of a write. A bucket with Object Lock refuses a write without it or a newer checksum,
// which not all stores know. Only a directory bucket, which has no Object Lock, refuses Content-MD5.
func checksum(bucket string, value []byte) *string {
	if strings.HasSuffix(bucket, "--x-s3") {
		return nil
	}
	sum := md5.Sum(value) //nolint:gosec // a checksum, not a secret
	return aws.String(base64.StdEncoding.EncodeToString(sum[:]))
}

// changed reports whether the service has refused a write because of its condition.
func changed(err error) bool {
	switch code(err) {
	case "PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey":
		return true
	}
	return status(err) == http.StatusPreconditionFailed
}
