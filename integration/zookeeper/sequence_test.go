package zookeeper_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// TestLastSequenceNumbers locks while the sequence numbers of the lock's node come to their
// end, and after the server gives every node the same number. The driver must replace the
// node. Until then the order of the queue, which excludes, would be by chance.
func TestLastSequenceNumbers(t *testing.T) {
	const last = math.MaxInt32 - 1<<20
	counts := map[string]int32{"used-up": math.MaxInt32 - 20, "nearly-used-up": last - 200}
	s := usedNodes(t, counts)
	conn := admin(t, []string{s.Addr()})
	for key, count := range counts {
		if name := must[string](t)(conn.Create(node(key)+"/x-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))); name != fmt.Sprintf("%s/x-%010d", node(key), count) {
			t.Fatalf("the server's counter was not changed: it created %s", name)
		} else if err := conn.Delete(name, -1); err != nil {
			t.Fatal(err)
		}
		t.Run(key, func(t *testing.T) {
			lockMany(t, "zk://"+s.Addr(), key, 1000)
			if _, stat, err := conn.Exists(node(key)); err != nil || uint32(stat.Cversion+stat.NumChildren)/2 > 10_000 { // the changes, and so twice the count
				t.Errorf("the node of the lock was not replaced: %+v, %v", stat, err)
			}
		})
	}
}

// lockMany locks n times, by twelve waiters of four clients.
func lockMany(t *testing.T, url, key string, n int) {
	check := &exclusionCheck{t: t}
	var clients []*lock.Client
	for range 4 {
		clients = append(clients, client(t, url, 10*time.Second))
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			name := fmt.Sprint("waiter ", i)
			for check.grants() < n && !t.Failed() {
				l, err := clients[i%4].Mutex(key).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				check.enter(name, l)
				token, _ := l.Token()
				check.leave(name, token)
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d acquisitions", check.grants())
}

// usedNodes returns a server whose nodes of these keys have had that many children: it
// changes the server's log of transactions, since 2^31 acquisitions take too long for a test.
func usedNodes(t *testing.T, counts map[string]int32) *provision.Server {
	t.Helper()
	dir := provision.Tmpfs(t, 64<<20)
	s := provision.NewZooKeeperLogging(t, provision.ZooKeeper39, dir)
	conn := admin(t, []string{s.Addr()})
	c := client(t, "zk://"+s.Addr(), 5*time.Second)
	for key := range counts {
		makeNode(t, c, key)
		path := node(key) + "/counts"
		must[string](t)(conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
		if err := conn.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	logs := must[[]string](t)(filepath.Glob(filepath.Join(dir, "version-2", "log.*")))
	if len(logs) != 1 {
		t.Fatalf("logs of the server: %q", logs)
	}
	log := must[[]byte](t)(os.ReadFile(logs[0]))
	for key, count := range counts {
		if err := setCount(log, node(key)+"/counts", count); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(logs[0], log, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// setCount changes the transaction that created the node: its parent has had count
// children then. The log has a head of 16 bytes, and for each transaction a checksum, the
// length, the transaction and one more byte.
func setCount(log []byte, path string, count int32) error {
	for at := 16; at+12 < len(log); {
		n := int(binary.BigEndian.Uint32(log[at+8:]))
		if n == 0 {
			break
		}
		txn := log[at+12 : at+12+n]
		i := bytes.Index(txn, append(binary.BigEndian.AppendUint32(nil, uint32(len(path))), path...))
		if kind := binary.BigEndian.Uint32(txn[8+4+8+8:]); i >= 0 && kind == 1 { // create
			i += 4 + len(path) + 4 // the value has no bytes
			entries := int(binary.BigEndian.Uint32(txn[i:]))
			for i += 4; entries > 0; entries-- { // of the ACL: permissions, scheme and id
				i += 4
				for range 2 {
					i += 4 + int(binary.BigEndian.Uint32(txn[i:]))
				}
			}
			binary.BigEndian.PutUint32(txn[i+1:], uint32(count)) // after a byte: ephemeral or not
			binary.BigEndian.PutUint64(log[at:], uint64(adler32.Checksum(txn)))
			return nil
		}
		at += 12 + n + 1
	}
	return fmt.Errorf("no transaction created %s", path)
}
