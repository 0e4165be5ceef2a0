package provision

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are a certificate authority made for one test, a server certificate for 127.0.0.1, ::1 and localhost,
// a client certificate, and a second authority that signed none of them. The names are of PEM files.
type Certificates struct {
	CAFile, OtherCAFile           string
	CertFile, KeyFile             string
	ClientCertFile, ClientKeyFile string

	ca, other *x509.CertPool
}

// TLS makes certificates that live as long as the test.
func TLS(t testing.TB) *Certificates {
	t.Helper()
	c, err := newCertificates(t.TempDir())
	if err != nil {
		t.Fatalf("provision: make certificates: %v", err)
	}
	return c
}

// Client returns a configuration that trusts the server's authority.
func (c *Certificates) Client() *tls.Config {
	return &tls.Config{RootCAs: c.ca, MinVersion: tls.VersionTLS12}
}

// Stranger returns a configuration that trusts only the other authority, so that the server must be refused.
func (c *Certificates) Stranger() *tls.Config {
	return &tls.Config{RootCAs: c.other, MinVersion: tls.VersionTLS12}
}

// files returns what the server reads.
func (c *Certificates) files() []string { return []string{c.CAFile, c.CertFile, c.KeyFile} }

func newCertificates(dir string) (*Certificates, error) {
	c := &Certificates{
		CAFile: filepath.Join(dir, "ca.pem"), OtherCAFile: filepath.Join(dir, "other-ca.pem"),
		CertFile: filepath.Join(dir, "server.pem"), KeyFile: filepath.Join(dir, "server-key.pem"),
		ClientCertFile: filepath.Join(dir, "client.pem"), ClientKeyFile: filepath.Join(dir, "client-key.pem"),
		ca: x509.NewCertPool(), other: x509.NewCertPool(),
	}
	ca, err := newAuthority("test authority", c.CAFile)
	if err != nil {
		return nil, err
	}
	other, err := newAuthority("other authority", c.OtherCAFile)
	if err != nil {
		return nil, err
	}
	c.ca.AddCert(ca.cert)
	c.other.AddCert(other.cert)
	if err := ca.issue("server", x509.ExtKeyUsageServerAuth, c.CertFile, c.KeyFile); err != nil {
		return nil, err
	}
	return c, ca.issue("client", x509.ExtKeyUsageClientAuth, c.ClientCertFile, c.ClientKeyFile)
}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(name, file string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(name)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key}, writePEM(file, "CERTIFICATE", der)
}

func (a *authority) issue(name string, usage x509.ExtKeyUsage, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(certFile, "CERTIFICATE", der); err != nil {
		return err
	}
	return writePEM(keyFile, "PRIVATE KEY", private)
}

func certificate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // rand.Reader never fails
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		// A container's clock may lag a little behind ours.
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(24 * time.Hour),
	}
}

func writePEM(file, kind string, der []byte) error {
	b := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}
