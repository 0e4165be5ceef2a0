package zookeeper_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// overTLS connects through a TLS proxy, which behaves as the secure port of a server.
func overTLS(t *testing.T, addr string, _ *zk.Conn) {
	certs := provision.TLS(t)
	pair, err := tls.LoadX509KeyPair(certs.CertFile, certs.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer in.Close()
				out, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(out, in)
					_ = out.Close()
				}()
				_, _ = io.Copy(in, out)
			})
		}
	})
	url := "zk://" + l.Addr().String() + "?tls=true"
	c, err := lock.Open(t.Context(), url+"&tls_ca="+certs.CAFile, lock.WithTTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	held := must[*lock.Lease](t)(c.Mutex("tls").Lock(t.Context()))
	if err := errors.Join(held.Check(t.Context()), held.Unlock(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := lock.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the CA: got %v", err)
	}
	if _, err := lock.Open(t.Context(), "zk://"+l.Addr().String()); err == nil {
		t.Error("a client without TLS could open")
	}
}
