package s3lock

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"go.uber.org/goleak"

	"github.com/interlock-go/lock/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noConfiguration hides the configuration of the SDK on this machine.
func noConfiguration(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, "/dev/null")
	}
	for _, name := range []string{"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func openURL(ctx context.Context, rawURL string) (backend.Backend, error) {
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return backend.Open(ctx, u)
}

func TestURLErrors(t *testing.T) {
	noConfiguration(t)
	for url, want := range map[string]string{
		"s3:///p":                                          "URL bucket",
		"s3://bucket:9000":                                 "URL bucket",
		"s3://a,b":                                         "URL bucket",
		"s3://bucket":                                      "AWS_REGION",
		"s3://bucket?timeout=1ms":                          "timeout",
		"s3://bucket?timeout=soon":                         "timeout",
		"s3://bucket?margin=1m":                            "unknown",
		"s3://bucket?poll=1ms":                             "poll",
		"s3://bucket?poll=2h":                              "poll",
		"s3://bucket?prefix=x":                             "unknown",
		"s3://bucket?path_style=perhaps":                   "path_style",
		"s3://bucket?region=a%20b":                         "region",
		"s3://bucket?sse=aes256":                           "AES256, aws:kms or aws:kms:dsse",
		"s3://bucket?sse_kms_key_id=k":                     "sse=aws:kms",
		"s3://bucket?sse=AES256&sse_kms_key_id=k":          "sse=aws:kms",
		"s3://bucket?sse=aws:kms&sse_kms_key_id=a%0Ab":     "sse_kms_key_id",
		"s3://bucket?sse=aws:kms:dsse&sse_bucket_key=true": "sse=aws:kms",
		"s3://bucket?acl=everyone":                         "bucket-owner-full-control",
		"s3://bucket?endpoint=host:9000":                   "endpoint",
		"s3://bucket?endpoint=ftp://host":                  "endpoint",
		"s3://bucket?endpoint=http://u:hush@host":          "endpoint",
		"s3://bucket?endpoint=http://h&tls_ca=x":           "need an endpoint with https://",
		"s3://bucket/a:b":                                  "prefix",
		"s3://bucket/a//b":                                 "prefix",
		"s3://bucket/a/../b":                               "prefix",
		"s3://bucket/" + strings.Repeat("x", 513):          "prefix",
		"s3://id@bucket":                                   "user and password",
		"s3://:hush@bucket":                                "user and password",
		"s3://id:hu%20sh@bucket":                           "user and password",
	} {
		_, err := openURL(t.Context(), url)
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want ErrInvalid with %q, got %v", url, want, err)
		}
		if err != nil && (strings.Contains(err.Error(), "hu sh") || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: the error has the secret: %v", url, err)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	client := s3.New(s3.Options{})
	for want, opt := range map[string]Option{
		"prefix": WithPrefix("a:b"), "timeout": WithTimeout(0), "poll": WithPoll(2 * time.Hour),
	} {
		if _, err := New(client, "bucket", opt); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrInvalid with %q, got %v", want, err)
		}
	}
	if _, err := New(nil, "bucket"); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("without a client: %v", err)
	}
	if _, err := New(client, ""); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("without a bucket: %v", err)
	}
}

func TestAbsentServer(t *testing.T) {
	noConfiguration(t)
	_, err := openURL(t.Context(), "s3://id:hush@bucket?endpoint=http://127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || strings.Contains(err.Error(), "secret") || backend.OutcomeUnknown(err) {
		t.Errorf("want an error of a request that was not executed, with the address and without the secret, got %v", err)
	}
}

func TestNoCredentials(t *testing.T) {
	noConfiguration(t)
	_, err := openURL(t.Context(), "s3://bucket?endpoint=http://127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "credentials") || backend.OutcomeUnknown(err) {
		t.Errorf("want an error of a request that was not executed, got %v", err)
	}
}

// Opening ends with its context while a server accepts connections and does not answer, and with the timeout.
func TestSilentServer(t *testing.T) {
	noConfiguration(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	url := "s3://id:hush@bucket?endpoint=http://" + silent.Addr().String()
	if _, err := openURL(ctx, url); !errors.Is(err, context.DeadlineExceeded) || !backend.OutcomeUnknown(err) {
		t.Errorf("want the end of the context and an unknown outcome, got %v", err)
	}
	_, err = openURL(t.Context(), url+"&timeout=100ms")
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer in 100ms") || !backend.OutcomeUnknown(err) {
		t.Errorf("want an unknown outcome after 100ms, got %v", err)
	}
}
