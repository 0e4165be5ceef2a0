package provision

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// The flavours of S3 that the tests know. Both are local processes, which hack/setup.sh builds.
const (
	VersityGW = "versitygw"
	MinIO     = "minio"
)

// S3Bucket is the bucket of each server.
const S3Bucket = "locks"

// The credentials of a server that the options give none.
const s3User, s3Password = "minioadmin", "minioadmin"

// S3Flavours returns the flavours that every test against S3 should run with.
func S3Flavours() []string { return []string{VersityGW, MinIO} }

var s3Kinds = map[string]kind{
	VersityGW: s3Kind(kind{flavour: VersityGW, args: versityArgs}),
	MinIO: s3Kind(kind{flavour: MinIO, extra: true, args: minioArgs, env: []string{
		"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_ROOT_USER=" + s3User, "MINIO_ROOT_PASSWORD=" + s3Password,
	}}),
}

var s3BinaryVersion = regexp.MustCompile(`(?i)version[ :]+(\S+)`)

func s3Kind(k kind) kind {
	k.service, k.binaries, k.url = "s3", []string{builtBinary(k.flavour)}, s3URL
	k.binaryVersion = func(output string) string { return firstMatch(s3BinaryVersion, output) }
	k.probe = func(ctx context.Context, server string, o Options) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		admin, err := S3Admin(server, o)
		if err != nil {
			return "", final{err}
		}
		_, err = admin.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(S3Bucket)})
		if err != nil && !errors.As(err, new(*types.BucketAlreadyOwnedByYou)) {
			return "", err
		}
		return moduleVersion(k.binaries[0])
	}
	return k
}

// moduleVersion returns the version of the module that a server was built from: it does not know it.
func moduleVersion(binary string) (string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", final{err}
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/versity/versitygw" || m.Path == "github.com/minio/minio" {
			return m.Version, nil
		}
	}
	return info.Main.Version, nil
}

// NewS3 starts a server for this test alone, which may stop, pause, kill and restart it; its data survives that. It
// has the bucket S3Bucket.
func NewS3(t testing.TB, flavour string, o Options) *Server {
	t.Helper()
	k, ok := s3Kinds[flavour]
	if !ok {
		t.Fatalf("provision: flavour %q: want %q or %q", flavour, VersityGW, MinIO)
	}
	return newPrivate(t, k, o)
}

func versityArgs(host string, port int, dir string, o Options) []string {
	user, password := s3Credentials(o)
	args := []string{"--access", user, "--secret", password, "--port", net.JoinHostPort(host, strconv.Itoa(port))}
	if o.TLS != nil {
		args = append(args, "--cert", o.TLS.CertFile, "--key", o.TLS.KeyFile)
	}
	return append(args, dir)
}

func minioArgs(host string, port int, dir string, _ Options) []string {
	return []string{
		"server", "--quiet", "--address", net.JoinHostPort(host, strconv.Itoa(port)), "--console-address", net.JoinHostPort(host, "0"),
		"--certs-dir", filepath.Join(dir, "certs"), filepath.Join(dir, "data"),
	}
}

func s3Credentials(o Options) (user, password string) {
	if o.Password == "" {
		return s3User, s3Password
	}
	return o.Username, o.Password
}

func s3URL(addr string, o Options) string {
	endpoint := "http://" + addr
	if o.TLS != nil {
		endpoint = "https://" + addr
	}
	u := url.URL{
		Scheme: "s3", User: url.UserPassword(s3Credentials(o)), Host: S3Bucket,
		RawQuery: url.Values{"endpoint": {endpoint}, "region": {"us-east-1"}}.Encode(),
	}
	return u.String()
}

// S3Admin returns a client of the server of a URL. It trusts the certificates of the options.
func S3Admin(server string, o Options) (*s3.Client, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	if u.User == nil || u.Query().Get("endpoint") == "" {
		return nil, fmt.Errorf("want s3://user:password@bucket?endpoint=..., got the host %q", u.Host)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if o.TLS != nil {
		transport.TLSClientConfig = o.TLS.Client()
	}
	user := u.User.Username()
	password, _ := u.User.Password()
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(u.Query().Get("endpoint")), Region: u.Query().Get("region"), UsePathStyle: true,
		HTTPClient: &http.Client{Transport: transport}, Retryer: aws.NopRetryer{},
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: user, SecretAccessKey: password}, nil
		}),
	}), nil
}

// S3Sign signs a request again that was signed, for a server with the default credentials.
func S3Sign(r *http.Request) error {
	return v4.NewSigner().SignHTTP(r.Context(), aws.Credentials{AccessKeyID: s3User, SecretAccessKey: s3Password},
		r, r.Header.Get("X-Amz-Content-Sha256"), "s3", "us-east-1", time.Now(), func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
}
