package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/certmagiclock"
	"github.com/interlock-go/lock/memlock"
)

var (
	_ certmagic.Storage          = (*certmagiclock.Storage)(nil)
	_ certmagic.TryLocker        = (*certmagiclock.Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*certmagiclock.Storage)(nil)
)

// unlockable is a storage whose own locks must not be used.
type unlockable struct {
	certmagic.Storage
	t *testing.T
}

func (u unlockable) Lock(context.Context, string) error {
	u.t.Error("the storage's own lock is used")
	return nil
}

// node is one of several nodes that share a storage and a lock service.
type node struct {
	c *lock.Client
	s *certmagiclock.Storage
}

func nodes(t *testing.T, n int) []node {
	files := unlockable{&certmagic.FileStorage{Path: t.TempDir()}, t}
	space, out := memlock.NewSpace(), make([]node, n)
	for i := range out {
		c, err := lock.New(space.Backend(), lock.WithLogger(nil))
		must(t, err)
		t.Cleanup(func() { must(t, c.Close(context.Background())) })
		out[i] = node{c, certmagiclock.New(files, c.Mutex)}
	}
	return out
}

// config returns the configuration of certmagic for a node.
func (n node) config(t *testing.T, a *authority) *certmagic.Config {
	var cfg *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return cfg, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	cfg = certmagic.New(cache, certmagic.Config{Storage: n.s, Issuers: []certmagic.Issuer{a}, Logger: zap.NewNop()})
	return cfg
}

// authority issues certificates. It calls before first, and counts the calls.
type authority struct {
	before func(ctx context.Context) error
	mu     sync.Mutex
	asked  int
}

func (a *authority) IssuerKey() string { return "test" }

func (a *authority) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.mu.Lock()
	a.asked++
	a.mu.Unlock()
	if err := a.before(ctx); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, csr.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

const (
	site     = "example.com"
	siteLock = "certmagic/issue_cert_example.com"
)

// Nodes that request the same certificate at the same time ask the authority once.
func TestOneCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, 3)
		a := &authority{before: func(ctx context.Context) error {
			time.Sleep(5 * time.Minute) // longer than the TTL
			info, err := all[0].c.Inspect(ctx, siteLock)
			if err == nil && (info.Holder == nil || len(info.Waiters) != len(all)-1) {
				err = errors.New("want one holder, and the others to wait")
			}
			return err
		}}
		ended := make(chan error, len(all))
		for _, n := range all {
			cfg := n.config(t, a)
			go func() { ended <- cfg.ObtainCertSync(t.Context(), site) }()
		}
		for range all {
			must(t, <-ended)
		}
		if a.asked != 1 {
			t.Fatalf("the authority was asked %d times", a.asked)
		}
		if info, err := all[0].c.Inspect(t.Context(), siteLock); err != nil || info.Holder != nil {
			t.Fatal("still held:", info, err)
		}
	})
}

// A lock that was lost during an attempt is locked again before the next attempt, and
// certmagic then finds the certificate of another node.
func TestRetryAfterLoss(t *testing.T) {
	for name, other := range map[string]bool{"one node": false, "two nodes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := nodes(t, 2)
				second := all[1].config(t, &authority{before: func(context.Context) error {
					time.Sleep(90 * time.Second) // longer than the next attempt of the first node, which fails
					return nil
				}})
				ended := make(chan error, 1)
				a := &authority{}
				a.before = func(ctx context.Context) error {
					if a.asked > 1 {
						return nil
					}
					if _, err := all[1].c.Break(ctx, siteLock); err != nil {
						t.Error(err)
					}
					if other {
						go func() { ended <- second.ObtainCertSync(t.Context(), site) }()
					}
					return errors.New("not now")
				}
				must(t, all[0].config(t, a).ObtainCertAsync(t.Context(), site))
				want := 2
				if other {
					want = 1
					must(t, <-ended)
				}
				if a.asked != want {
					t.Fatalf("the authority was asked %d times, want %d", a.asked, want)
				}
				if info, err := all[0].c.Inspect(t.Context(), siteLock); err != nil || info.Holder != nil {
					t.Fatal("still held:", info, err)
				}
			})
		})
	}
}

// The contract of certmagic.Locker, between nodes and within one.
func TestLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, 2)
		begin, cancel := context.WithCancel(t.Context())
		must(t, all[0].s.Lock(begin, "x"))
		cancel() // ends the wait, not the lease
		for _, n := range all {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := n.s.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if ok, err := n.s.TryLock(t.Context(), "x"); ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		turns := make(chan int, 4)
		for i, n := range []node{all[0], all[0], all[1], all[1]} {
			go func() {
				err := n.s.Lock(t.Context(), "x")
				if err == nil {
					turns <- i
					err = n.s.Unlock(t.Context(), "x")
				}
				if err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if len(turns) != 0 {
			t.Fatal("locked twice")
		}
		must(t, all[0].s.Unlock(t.Context(), "x"))
		for range cap(turns) {
			<-turns
		}
		synctest.Wait()
		for _, n := range all {
			if ok, err := n.s.TryLock(t.Context(), "x"); !ok || err != nil {
				t.Fatal(ok, err)
			}
			must(t, n.s.Unlock(t.Context(), "x"))
			if n.s.Unlock(t.Context(), "x") == nil || n.s.RenewLockLease(t.Context(), "x", time.Minute) == nil {
				t.Fatal("unlocked or renewed a name that is not locked")
			}
			if err := n.s.Lock(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			if ok, err := n.s.TryLock(t.Context(), string(make([]byte, 2000))); ok || !errors.Is(err, lock.ErrInvalid) {
				t.Fatal(ok, err)
			}
			must(t, n.s.Unlock(t.Context(), ""))
		}
	})
}

// After a loss the name stays reserved in the process until Unlock, so that Unlock does not
// release the lock of a successor. Unlock returns nil.
func TestUnlockAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, 2)
		must(t, all[0].s.Lock(t.Context(), "x"))
		_, err := all[1].c.Break(t.Context(), "certmagic/x")
		must(t, err)
		locked := make(chan error)
		go func() { locked <- all[0].s.Lock(t.Context(), "x") }()
		synctest.Wait()
		must(t, all[1].s.Lock(t.Context(), "x"))
		if err := all[0].s.RenewLockLease(t.Context(), "x", time.Minute); !errors.Is(err, lock.ErrLost) || !errors.Is(err, lock.ErrLocked) {
			t.Fatal(err)
		}
		must(t, all[0].s.Unlock(t.Context(), "x"))
		if ok, err := all[0].s.TryLock(t.Context(), "x"); ok || err != nil {
			t.Fatal("released the lock of the successor", ok, err)
		}
		must(t, all[1].s.Unlock(t.Context(), "x"))
		must(t, <-locked)
		must(t, all[0].s.Unlock(t.Context(), "x"))
	})
}

// interrupted calls a function before each Lock and TryLock.
type interrupted struct {
	lock.Mutex
	lock, try func()
}

func (m interrupted) Lock(ctx context.Context) (*lock.Lease, error) {
	m.lock()
	return m.Mutex.Lock(ctx)
}

func (m interrupted) TryLock(ctx context.Context) (*lock.Lease, error) {
	m.try()
	return m.Mutex.TryLock(ctx)
}

// If Unlock is called while RenewLockLease locks a lost lock again, the new lease is
// released, also if another caller in this process has begun to lock the name.
func TestUnlockWhileRenewing(t *testing.T) {
	for _, next := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := nodes(t, 1)[0]
			var s *certmagiclock.Storage
			locks, begun, freed, locked := 0, make(chan struct{}), make(chan struct{}), make(chan error, 1)
			first := func() {
				if locks++; locks == 2 {
					close(begun)
					<-freed
				}
			}
			s = certmagiclock.New(n.s.Storage, func(name string, opts ...lock.MutexOption) lock.Mutex {
				return interrupted{n.c.Mutex(name, opts...), first, func() {
					must(t, s.Unlock(t.Context(), "x"))
					if next {
						go func() {
							soon, cancel := context.WithTimeout(t.Context(), time.Minute)
							defer cancel()
							locked <- s.Lock(soon, "x")
						}()
						<-begun
					}
				}}
			})
			must(t, s.Lock(t.Context(), "x"))
			_, err := n.c.Break(t.Context(), "certmagic/x")
			must(t, err)
			synctest.Wait()
			if err := s.RenewLockLease(t.Context(), "x", time.Minute); err == nil {
				t.Error("renewed a name that is not locked")
			}
			if next {
				close(freed)
				must(t, <-locked)
				must(t, s.Unlock(t.Context(), "x"))
			}
			must(t, n.s.Lock(t.Context(), "x"))
			must(t, n.s.Unlock(t.Context(), "x"))
		})
	}
}

// RenewLockLease fails while Unlock is still under way.
func TestRenewingWhileUnlocking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *certmagiclock.Storage
		renewed := errors.New("not asked")
		c, err := lock.New(memlock.New(), lock.WithLogger(nil), lock.WithObserver(&lock.Observer{Released: func(context.Context, lock.Event) {
			renewed = s.RenewLockLease(t.Context(), "x", time.Minute)
		}}))
		must(t, err)
		defer func() { must(t, c.Close(context.Background())) }()
		s = certmagiclock.New(nil, c.Mutex)
		must(t, s.Lock(t.Context(), "x"))
		must(t, s.Unlock(t.Context(), "x"))
		if renewed == nil {
			t.Error("renewed a name while Unlock was under way")
		}
		if ok, err := s.TryLock(t.Context(), "x"); !ok || err != nil {
			t.Fatal("the lock stays held without an owner", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
