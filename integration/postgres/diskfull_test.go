package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
)

// TestDiskFull has the table on a full disk. A request fails and leaves nothing, or its
// grant is in the row. A held lock can be released.
func TestDiskFull(t *testing.T) {
	dir := provision.Tmpfs(t, 4<<20)
	s, admin := localServer(t)
	b := open(t, pgtest.With(s, nil))           // makes the table
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // the server is another user
	space := filepath.Join(dir, "space")
	sql(t, admin, "COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; mkdir -m 700 "+space+"'") // the server's own
	sql(t, admin, "CREATE TABLESPACE small LOCATION '"+space+"'")
	sql(t, admin, "ALTER TABLE interlock SET TABLESPACE small; ALTER TABLE interlock_places SET TABLESPACE small")
	holder := request("held", time.Hour)
	held, err := b.TryAcquire(t.Context(), holder)
	must(t, err)

	filler, err := os.Create(filepath.Join(dir, "filler"))
	must(t, err)
	for err == nil {
		_, err = filler.Write(make([]byte, 512))
	}
	must(t, filler.Close())
	granted, unknown, failed := map[string]backend.Grant{}, map[string]bool{}, 0
	for i := range 100 {
		req := request(fmt.Sprint("full-", i, strings.Repeat("x", 400)), time.Hour)
		g, err := b.TryAcquire(t.Context(), req)
		switch {
		case err == nil:
			granted[req.Owner] = g
		case g != nil:
			t.Fatalf("a grant with an error: %v", err)
		case !strings.Contains(err.Error(), "No space left"):
			t.Fatalf("want an error that names the cause, got %v", err)
		default:
			failed++
			unknown[req.Owner] = errors.Is(err, backend.ErrUncertain)
		}
	}
	t.Logf("%d granted, %d failed", len(granted), failed)
	if failed == 0 {
		t.Fatal("no request failed: the disk was not full")
	}
	rows, err := admin.Query(t.Context(), "SELECT owner FROM interlock WHERE owner IS NOT NULL")
	must(t, err)
	defer rows.Close()
	n := 0
	for rows.Next() {
		var owner string
		must(t, rows.Scan(&owner))
		switch {
		case granted[owner] != nil:
			n++
		case owner != holder.Owner && !unknown[owner]:
			t.Errorf("owner %s is in its row, and was refused", owner)
		}
	}
	must(t, rows.Err())
	if n != len(granted) {
		t.Errorf("%d granted, %d of them in the table", len(granted), n)
	}
	before := held.Token()
	must(t, held.Release(t.Context()))
	must(t, os.Remove(filler.Name()))
	again, err := b.TryAcquire(t.Context(), request("held", time.Hour))
	must(t, err)
	if again.Token() <= before {
		t.Errorf("token %d after %d", again.Token(), before)
	}
	must(t, again.Release(t.Context()))
}
