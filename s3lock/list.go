package s3lock

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/interlock-go/lock/backend"
)

const listReads = 16 // objects that a list reads at a time

// List implements backend.Lister. It makes one request for 1000 objects, and one to read each of
// them, free locks included.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	prefix := b.opt.prefix + "/"
	for from := (*string)(nil); ; {
		var page *s3.ListObjectsV2Output
		err := b.do(ctx, func(ctx context.Context, opt func(*s3.Options)) (err error) {
			page, err = b.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
				Bucket: &b.bucket, Prefix: &prefix, Delimiter: aws.String("/"), ContinuationToken: from,
			}, opt)
			return err
		})
		if err != nil {
			return err
		}
		for keys := page.Contents; len(keys) > 0; {
			n := min(len(keys), listReads)
			infos := make([]backend.Info, n)
			errs := make([]error, n)
			var reads sync.WaitGroup
			for i, o := range keys[:n] {
				reads.Go(func() { infos[i], errs[i] = b.info(ctx, aws.ToString(o.Key)) })
			}
			reads.Wait()
			for i, info := range infos {
				if errs[i] != nil {
					return errs[i]
				}
				if info.Holder != nil && !yield(info) {
					return nil
				}
			}
			keys = keys[n:]
		}
		if from = page.NextContinuationToken; from == nil || !aws.ToBool(page.IsTruncated) {
			return nil
		}
	}
}

// info reads an object. It returns no holder if that is no lock, or a free one.
func (b *Backend) info(ctx context.Context, key string) (backend.Info, error) {
	if key == b.opt.prefix+"/"+probeName || key == b.opt.prefix+"/"+clockName {
		return backend.Info{}, nil
	}
	item, meta, err := b.get(ctx, key)
	name, ok := nameOf(b.opt.prefix, key, meta)
	if err != nil || !ok {
		return backend.Info{}, err
	}
	return b.Info(ctx, name, item)
}
