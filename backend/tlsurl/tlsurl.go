// Package tlsurl reads the TLS settings of a backend URL, the same for every
// driver that has them:
//
//	tls_ca           file of PEM certificates to trust instead of the system's
//	tls_cert         file of the client's PEM certificate, with tls_key
//	tls_key          file of its PEM key
//	tls_server_name  name to expect in the server's certificate, if not the host's
//
// It is a package of its own so that a program with none of these drivers does not
// contain crypto/tls.
package tlsurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// Files are the values of the parameters.
type Files struct{ ca, cert, key, serverName string }

// Read marks the parameters as known and returns their values.
func Read(p *backend.Params) Files {
	return Files{
		ca: p.String("tls_ca", ""), cert: p.String("tls_cert", ""), key: p.String("tls_key", ""),
		serverName: p.String("tls_server_name", ""),
	}
}

// Config returns the configuration of a secure connection, with TLS 1.2 or newer. If
// secure is false, Config returns nil, and an error if a parameter was given: it says that
// these need what needs names, such as "tls=true". All errors match backend.ErrInvalid. They
// have the names of files and never their content.
func (f Files) Config(secure bool, needs string) (*tls.Config, error) {
	if !secure {
		if f != (Files{}) {
			return nil, fmt.Errorf("%w URL: tls_ca, tls_cert, tls_key and tls_server_name need %s", backend.ErrInvalid, needs)
		}
		return nil, nil
	}
	if strings.ContainsFunc(f.serverName, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		// an error of crypto/tls would repeat it as it is
		return nil, backend.Invalid("URL parameter tls_server_name", f.serverName, "a host name, in ASCII")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.serverName}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("%w URL parameter tls_ca: %w", backend.ErrInvalid, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, backend.Invalid("URL parameter tls_ca", f.ca, "a file of PEM certificates")
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, fmt.Errorf("%w URL: tls_cert and tls_key need each other", backend.ErrInvalid)
	}
	if f.cert == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w URL parameters tls_cert, tls_key: %w", backend.ErrInvalid, err)
	case err != nil: // it may quote the key
		const accepted = "PEM files of a certificate and its key"
		return nil, backend.Invalid("URL parameters tls_cert, tls_key", f.cert+", "+f.key, accepted)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
