package security_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/interlock-go/lock/integration/provision"
)

func s3Target(t *testing.T) target {
	// The SDK looks for credentials at no other service.
	if err := os.Setenv("AWS_EC2_METADATA_DISABLED", "true"); err != nil {
		t.Fatal(err)
	}
	certs := provision.TLS(t)
	o := provision.Options{TLS: certs, Username: "app", Password: provision.Secret}
	s := provision.NewS3(t, provision.VersityGW, o)
	admin := must[*s3.Client](t)(provision.S3Admin(s.URL(), o))
	bucket := aws.String(provision.S3Bucket)
	must[*s3.PutObjectOutput](t)(admin.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: aws.String("bystander"), Body: strings.NewReader("alive")}))
	good := with(s.URL(), "tls_ca", certs.CAFile, "timeout", "10s")
	return target{
		url: good,
		refused: map[string]refusal{
			"another authority": {with(good, "tls_ca", certs.OtherCAFile), "certificate"},
			"another name":      {with(good, "tls_server_name", "elsewhere.test"), "elsewhere.test"},
			"no TLS":            {with(good, "tls_ca", "", "endpoint", "http://"+s.Addr()), s.Addr()},
			// The server closes the connection beside its reply, so only the status certainly arrives.
			"a wrong secret":         {as(good, "app", wrong), "StatusCode: 403"},
			"no credentials":         {as(good, "", ""), "credentials"},
			"no such key":            {as(good, "no-such-key", provision.Secret), "StatusCode: 404"},
			"another region":         {with(good, "region", "eu-central-1"), "eu-central-1"},
			"another bucket":         {strings.Replace(good, "@"+provision.S3Bucket, "@elsewhere", 1), "NoSuchBucket"},
			"a prefix with two dots": {strings.Replace(good, "?", "/../x?", 1), "prefix"},
		},
		others: func(t *testing.T) []string {
			out := must[*s3.ListObjectsV2Output](t)(admin.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: bucket}))
			var keys []string
			for _, o := range out.Contents {
				if key := aws.ToString(o.Key); !strings.HasPrefix(key, "lock/") {
					keys = append(keys, key+" "+aws.ToString(o.ETag))
				}
			}
			buckets := must[*s3.ListBucketsOutput](t)(admin.ListBuckets(t.Context(), nil))
			for _, b := range buckets.Buckets {
				keys = append(keys, "bucket "+aws.ToString(b.Name))
			}
			slices.Sort(keys)
			return keys
		},
		params: []string{"timeout", "poll", "path_style", "endpoint"},
	}
}
