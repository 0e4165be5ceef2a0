package gooselock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/gooselock"
	"github.com/interlock-go/lock/memlock"
)

// table is the database: it has the versions that were applied, and can begin
// transactions.
type table struct {
	mu       sync.Mutex
	versions []int64
}

// The methods of a driver of database/sql.
func (b *table) Connect(context.Context) (driver.Conn, error) { return conn{}, nil }
func (b *table) Driver() driver.Driver                        { return nil }

type conn struct{}

func (conn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (conn) Begin() (driver.Tx, error)           { return conn{}, nil }
func (conn) Close() error                        { return nil }
func (conn) Commit() error                       { return nil }
func (conn) Rollback() error                     { return nil }

// The methods of a store of goose.
func (b *table) Tablename() string                                            { return "versions" }
func (b *table) CreateVersionTable(context.Context, database.DBTxConn) error  { return nil }
func (b *table) Delete(context.Context, database.DBTxConn, int64) error       { return errors.ErrUnsupported }
func (b *table) TableExists(context.Context, database.DBTxConn) (bool, error) { return true, nil }
func (b *table) GetLatestVersion(context.Context, database.DBTxConn) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Max(b.versions), nil
}

func (b *table) Insert(_ context.Context, _ database.DBTxConn, req database.InsertRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.Contains(b.versions, req.Version) {
		return errors.New("applied twice")
	}
	b.versions = append(b.versions, req.Version)
	return nil
}

func (b *table) GetMigration(_ context.Context, _ database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.versions, version) {
		return nil, database.ErrVersionNotFound
	}
	return &database.GetMigrationResult{IsApplied: true}, nil
}

func (b *table) ListMigrations(context.Context, database.DBTxConn) (all []*database.ListMigrationsResult, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range slices.Backward(b.versions) {
		all = append(all, &database.ListMigrationsResult{Version: v, IsApplied: true})
	}
	return all, nil
}

// instance is one instance of an application, with two migrations.
type instance struct {
	*goose.Provider
	db *sql.DB
	c  *lock.Client
}

// instances returns n instances, each with a locker unless opts say otherwise.
func instances(t *testing.T, n int, migration func(ctx context.Context, version int64) error, other ...goose.ProviderOption) []instance {
	b, space, out := &table{versions: []int64{0}}, memlock.NewSpace(), make([]instance, n)
	for i := range out {
		c, err := lock.New(space.Backend(), lock.WithLogger(nil))
		must(t, err)
		db := sql.OpenDB(b)
		up := func(version int64) *goose.Migration {
			return goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, _ *sql.Tx) error { return migration(ctx, version) }}, nil)
		}
		options := append([]goose.ProviderOption{goose.WithStore(b), goose.WithGoMigrations(up(1), up(2))}, other...)
		if len(other) == 0 {
			options = append(options, goose.WithSessionLocker(gooselock.New(c.Mutex("migrations"))))
		}
		p, err := goose.NewProvider("", db, nil, options...)
		must(t, err)
		t.Cleanup(func() {
			if n := db.Stats().InUse; n != 0 {
				t.Errorf("%d connections are in use", n)
			}
			must(t, db.Close())
			must(t, c.Close(context.Background()))
		})
		out[i] = instance{p, db, c}
	}
	return out
}

// up migrates with all instances at the same time.
func up(t *testing.T, all []instance) (errs []error) {
	ended := make(chan error, len(all))
	for _, in := range all {
		go func() {
			_, err := in.Up(t.Context())
			ended <- err
		}()
	}
	for range all {
		errs = append(errs, <-ended)
	}
	return errs
}

// Instances that start at the same time make each migration once, and more than once
// without the lock.
func TestEachMigrationOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var made []int64
		migration := func(_ context.Context, version int64) error {
			time.Sleep(5 * time.Minute) // longer than the TTL
			mu.Lock()
			defer mu.Unlock()
			made = append(made, version)
			return nil
		}
		for _, err := range up(t, instances(t, 3, migration)) {
			must(t, err)
		}
		if !slices.Equal(made, []int64{1, 2}) {
			t.Fatal(made)
		}
		unlocked := goose.WithVerbose(false) // the default
		if errs := up(t, instances(t, 3, migration, unlocked)); len(made) == 4 || errors.Join(errs...) == nil {
			t.Fatal(made, errs)
		}
	})
}

// spy records the last connection of a locker.
type spy struct {
	*gooselock.Locker
	conn *sql.Conn
}

func (s *spy) SessionLock(ctx context.Context, c *sql.Conn) error {
	s.conn = c
	return s.Locker.SessionLock(ctx, c)
}

// closed returns when the connection is closed, or waits for the end of its transaction.
func (s *spy) closed() {
	over := make(chan struct{})
	go func() {
		defer close(over)
		for s.conn.PingContext(context.Background()) == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	select {
	case <-over:
	case <-time.After(2 * time.Second): // the ping waits for the closing
	}
}

// After a loss the transaction that has begun is completed, no other begins, and the error
// matches ErrLost. Not in a bubble, because closing waits for a sync.RWMutex.
func TestLoss(t *testing.T) {
	c, err := lock.New(memlock.New(), lock.WithLogger(nil))
	must(t, err)
	defer c.Close(context.Background())
	l := &spy{Locker: gooselock.New(c.Mutex("migrations"))}
	var made []int64
	all := instances(t, 2, func(ctx context.Context, version int64) error {
		if len(made) == 0 {
			_, err := c.Break(ctx, "migrations")
			must(t, err)
			l.closed()
		}
		made = append(made, version)
		return ctx.Err()
	}, goose.WithSessionLocker(l))
	if _, err := all[0].Up(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Fatal(err)
	}
	if v, err := all[0].GetDBVersion(t.Context()); err != nil || v != 1 || !slices.Equal(made, []int64{1}) {
		t.Fatal(v, err, made)
	}
	_, err = all[1].Up(t.Context())
	must(t, err)
	if !slices.Equal(made, []int64{1, 2}) {
		t.Fatal(made)
	}
}

// Under lock.Do, as the package documentation advises, the loss ends the context of the
// migration.
func TestLossUnderDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []instance
		all = instances(t, 1, func(ctx context.Context, _ int64) error {
			_, err := all[0].c.Break(ctx, "do")
			must(t, err)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		err := lock.Do(t.Context(), all[0].c.Mutex("do"), func(ctx context.Context) error {
			_, err := all[0].Up(ctx)
			return err
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Fatal(err)
		}
		if v, err := all[0].GetDBVersion(t.Context()); err != nil || v != 0 {
			t.Fatal("a migration was recorded", v, err)
		}
		synctest.Wait() // database/sql rolls back in a goroutine of its own when the context ends
	})
}

// The end of the caller's context ends the wait and leaves no waiter behind.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := instances(t, 2, func(context.Context, int64) error { return nil })
		l, err := all[0].c.Mutex("migrations").TryLock(t.Context())
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := all[1].Up(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lock.ErrLocked) {
			t.Fatal(err)
		}
		must(t, l.Unlock(t.Context()))
		_, err = all[1].Up(t.Context())
		must(t, err)
		c, err := all[0].db.Conn(t.Context())
		must(t, err)
		defer c.Close()
		if gooselock.New(all[0].c.Mutex("migrations")).SessionUnlock(t.Context(), c) == nil {
			t.Fatal("unlocked a session that is not locked")
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
