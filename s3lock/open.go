package s3lock

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() { backend.Register("s3", Open) }

const (
	maxIdle   = 64          // connections that stay open
	anyRegion = "us-east-1" // what most other services take
)

// Open opens a backend from a URL; see the package's documentation for its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	s, err := parse(u)
	if err != nil {
		return nil, err
	}
	client, h, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	b, err := open(ctx, client, h, s.bucket, s.options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	return b, nil
}

// settings are what a URL says.
type settings struct {
	options
	bucket, endpoint, region string
	pathStyle                bool
	credentials              aws.CredentialsProvider // nil: the default chain of the SDK
	tls                      *tls.Config             // nil: that of the SDK
}

func (s *settings) String() string {
	at := s.endpoint
	if at == "" {
		at = "AWS"
	}
	return fmt.Sprintf("s3 bucket %q at %s, region %q", s.bucket, at, s.region)
}

func parse(u *backend.URL) (*settings, error) {
	p, s := u.Params, &settings{options: defaults()}
	s.timeout = p.Duration("timeout", s.timeout)
	s.poll = p.Duration("poll", s.poll)
	s.encryption = Encryption{p.String("sse", ""), p.String("sse_kms_key_id", ""), p.Bool("sse_bucket_key", false)}
	s.acl = p.String("acl", "")
	s.endpoint, s.region = p.String("endpoint", ""), p.String("region", "")
	s.pathStyle = p.Bool("path_style", s.endpoint != "")
	files := tlsurl.Read(p)
	if err := p.Err(); err != nil {
		return nil, err
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		s.prefix = prefix
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(u.Hosts) != 1 || !bucketName.MatchString(u.Hosts[0]) {
		return nil, backend.Invalid("URL bucket", strings.Join(u.Hosts, ","), "s3://bucket[/prefix], the host of the service in the parameter endpoint")
	}
	s.bucket = u.Hosts[0]
	if s.endpoint != "" {
		e, err := url.Parse(s.endpoint)
		if err != nil || e.Host == "" || e.User != nil || e.RawQuery != "" || e.Scheme != "http" && e.Scheme != "https" {
			return nil, fmt.Errorf("%w URL parameter endpoint: want http[s]://host[:port]", backend.ErrInvalid) // it may hold a password
		}
	}
	if s.region != "" && !regionName.MatchString(s.region) {
		return nil, backend.Invalid("URL parameter region", s.region, "1 to 63 ASCII letters, digits and '-', such as eu-central-1")
	}
	if err := s.setUser(u.User); err != nil {
		return nil, err
	}
	secure, err := files.Config(!strings.HasPrefix(s.endpoint, "http:"), "an endpoint with https://")
	if err != nil {
		return nil, err
	}
	if files != (tlsurl.Files{}) {
		s.tls = secure
	}
	return s, nil
}

// setUser takes the credentials of the URL.
func (s *settings) setUser(user *url.Userinfo) error {
	if user == nil {
		return nil
	}
	id := user.Username()
	secret, _ := user.Password()
	if id == "" || secret == "" || strings.ContainsFunc(id+secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%w URL user and password: want the id of an access key and its secret, in ASCII without spaces", backend.ErrInvalid)
	}
	s.credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: id, SecretAccessKey: secret, Source: "the URL"}, nil
	})
	return nil
}

// connect makes a client by the configuration of the SDK and the URL. It sends no request to S3.
func (s *settings) connect(ctx context.Context) (*s3.Client, *http.Client, error) {
	load := []func(*config.LoadOptions) error{config.WithLogger(sdkLogger{})}
	if s.region != "" {
		load = append(load, config.WithRegion(s.region))
	}
	if s.credentials != nil {
		load = append(load, config.WithCredentialsProvider(s.credentials))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, nil, backend.NotExecuted(err)
	}
	switch {
	case cfg.Region != "":
	case s.endpoint != "":
		cfg.Region = anyRegion
	default:
		return nil, nil, fmt.Errorf("%w region: there is none: want the URL parameter region, AWS_REGION or one of the profile", backend.ErrInvalid)
	}
	s.region = cfg.Region
	// That of the configuration has AWS_CA_BUNDLE.
	base, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		base = awshttp.NewBuildableClient()
	}
	transport := base.WithDialerOptions(func(d *net.Dialer) { d.Timeout = s.timeout }).WithTransportOptions(s.setTransport).GetTransport()
	h := &http.Client{Transport: transport, CheckRedirect: noRedirect}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = h
		o.UsePathStyle = s.pathStyle
		if s.endpoint != "" {
			o.BaseEndpoint = &s.endpoint
		}
	})
	return client, h, nil
}

// setTransport changes the transport of the SDK.
func (s *settings) setTransport(t *http.Transport) {
	t.MaxIdleConns, t.MaxIdleConnsPerHost = maxIdle, maxIdle
	t.TLSHandshakeTimeout = s.timeout
	// With HTTP/2 all requests are on one connection, and hang together if that is dead.
	t.ForceAttemptHTTP2, t.Protocols = false, new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	if s.tls != nil {
		t.TLSClientConfig = s.tls
	}
}

// noRedirect makes a redirect an error, which says that bucket or region are wrong.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
