package security_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/etcdlock"
	"github.com/interlock-go/lock/integration/provision"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func redisTarget(t *testing.T) target {
	certs := provision.TLS(t)
	s := provision.NewRedis(t, provision.AnyRedis, provision.Options{TLS: certs, Files: []string{certs.CAFile, certs.CertFile, certs.KeyFile}, Password: provision.Secret})
	admin := goredis.NewClient(&goredis.Options{Addr: s.Addr(), Password: provision.Secret, TLSConfig: certs.Client()})
	t.Cleanup(func() { _ = admin.Close() })
	must[string](t)(admin.Set(t.Context(), "bystander", "alive", 0).Result())
	good := with(s.URL(), "tls_ca", certs.CAFile, "dial_timeout", "10s")
	return target{
		url: good,
		refused: map[string]refusal{
			"another authority": {with(good, "tls_ca", certs.OtherCAFile), "certificate"},
			"another name":      {with(good, "tls_server_name", "elsewhere.test"), "elsewhere.test"},
			"no TLS":            {with(scheme(good, "redis"), "tls_ca", ""), s.Addr()},
			"a wrong password":  {as(good, "", wrong), "WRONGPASS"},
			"no password":       {as(good, "", ""), "NOAUTH"},
			"no such user":      {as(good, "no-such-user", provision.Secret), "WRONGPASS"},
		},
		others: func(t *testing.T) []string {
			var other []string
			for _, k := range must[[]string](t)(admin.Keys(t.Context(), "*").Result()) {
				if strings.HasPrefix(k, "lock:") || strings.HasPrefix(k, "{lock:") || strings.HasPrefix(k, "{") && strings.Contains(k, ":parameter}:") || strings.HasSuffix(k, ":parameter") ||
					strings.HasPrefix(k, "{") && strings.HasSuffix(k, ":}:t") { // the fence counter of a prefix
					continue
				}
				other = append(other, k+"="+admin.Get(t.Context(), k).Val())
			}
			slices.Sort(other)
			return other
		},
		params: []string{"prefix", "wait_replicas", "eviction"},
	}
}

func etcdTarget(t *testing.T) target {
	certs := provision.TLS(t)
	s := provision.NewEtcd(t, provision.AnyEtcd, provision.Options{TLS: certs})
	admin := must[*clientv3.Client](t)(clientv3.New(clientv3.Config{Endpoints: []string{"https://" + s.Addr()}, TLS: certs.Client(), DialTimeout: 5 * time.Second}))
	t.Cleanup(func() { _ = admin.Close() })
	ctx := t.Context()
	must[*clientv3.PutResponse](t)(admin.Put(ctx, "bystander", "alive"))
	must[*clientv3.AuthUserAddResponse](t)(admin.UserAdd(ctx, "root", provision.Secret))
	must[*clientv3.AuthUserGrantRoleResponse](t)(admin.UserGrantRole(ctx, "root", "root"))
	must[*clientv3.AuthUserAddResponse](t)(admin.UserAdd(ctx, "stranger", provision.Secret))
	must[*clientv3.AuthEnableResponse](t)(admin.AuthEnable(ctx))
	root := must[*clientv3.Client](t)(clientv3.New(clientv3.Config{Endpoints: []string{"https://" + s.Addr()}, TLS: certs.Client(), DialTimeout: 5 * time.Second, Username: "root", Password: provision.Secret}))
	t.Cleanup(func() { _ = root.Close() })
	good := with(as(scheme(s.URL(), "etcds"), "root", provision.Secret), "tls_ca", certs.CAFile, "dial_timeout", "10s")
	return target{
		url: good,
		refused: map[string]refusal{
			// the rest of TLS is TestTLS of integration/etcd
			"a wrong password": {as(good, "root", wrong), "authentication failed"},
			"no user":          {as(good, "", ""), "user name is empty"},
			"no such user":     {as(good, "no-such-user", provision.Secret), "authentication failed"},
			"no right":         {as(good, "stranger", provision.Secret), "permission denied"},
		},
		others: func(t *testing.T) []string {
			r := must[*clientv3.GetResponse](t)(root.Get(t.Context(), "\x00", clientv3.WithFromKey()))
			var other []string
			for _, kv := range r.Kvs {
				if k := string(kv.Key); !strings.HasPrefix(k, etcdlock.DefaultPrefix+"/") && !strings.Contains(k, "parameter") {
					other = append(other, k+"="+string(kv.Value))
				}
			}
			return other
		},
		params: []string{"prefix"},
	}
}

func zookeeperTarget(t *testing.T) target {
	s := provision.NewZooKeeper(t, provision.AnyZooKeeper)
	conn, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	must[string](t)(conn.Create("/bystander", []byte("alive"), zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
	return target{
		// TLS and rights are in integration/zookeeper
		url: as(s.URL(), "app", provision.Secret),
		refused: map[string]refusal{
			"a wrong password": {as(s.URL(), "app", wrong), "/interlock"},
			"no password":      {as(s.URL(), "app", ""), "password"},
			"no user":          {s.URL(), "/interlock"},
		},
		others: func(t *testing.T) []string {
			top, _, err := conn.Children("/")
			if err != nil {
				t.Fatal(err)
			}
			content, _, err := conn.Get("/bystander")
			if err != nil {
				t.Fatal(err)
			}
			other := []string{"/bystander=" + string(content)}
			for _, n := range top {
				if n == "bystander" || n == "zookeeper" {
					other = append(other, n)
				}
			}
			slices.Sort(other)
			return other
		},
		params: []string{"prefix", "auth"},
	}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func postgresTarget(t *testing.T) target {
	certs := provision.TLS(t)
	s := provision.NewPostgres(t, provision.AnyPostgres)
	admin := must[*pgx.Conn](t)(pgx.Connect(t.Context(), s.PostgresURL()))
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	do := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", strings.ReplaceAll(sql, provision.Secret, "(the password)"), err)
		}
	}
	// Everybody but the test itself needs TLS and a password. The server writes its own
	// files, since it may be in a container.
	var data, hba string
	if err := admin.QueryRow(t.Context(), "SELECT current_setting('data_directory'), current_setting('hba_file')").Scan(&data, &hba); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		do(fmt.Sprintf("COPY (SELECT unnest(string_to_array('%s', E'\\n'))) TO PROGRAM 'umask 077; cat >%s'", strings.TrimSpace(content), name))
	}
	for name, file := range map[string]string{"server.crt": certs.CertFile, "server.key": certs.KeyFile} {
		write(data+"/"+name, string(must[[]byte](t)(os.ReadFile(file))))
	}
	write(hba, "host all postgres all trust\nhostssl all all all scram-sha-256")
	do("CREATE ROLE app LOGIN PASSWORD '" + provision.Secret + "'")
	do("CREATE ROLE stranger LOGIN PASSWORD '" + provision.Secret + "'")
	do("CREATE TABLE bystander (a text)")
	do("INSERT INTO bystander VALUES ('alive')")
	do("CREATE SCHEMA locks AUTHORIZATION app")
	do("ALTER ROLE app SET search_path = locks")
	do("ALTER SYSTEM SET ssl = on")
	do("SELECT pg_reload_conf()")
	good := with(as(s.URL(), "app", provision.Secret), "sslmode", "verify-full", "sslrootcert", certs.CAFile, "dial_timeout", "5s")
	// A reload takes a moment to be seen.
	deadline := time.Now().Add(30 * time.Second)
	for {
		c, err := pgx.Connect(t.Context(), with(good, "dial_timeout", ""))
		if err == nil {
			_ = c.Close(t.Context())
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(strings.ReplaceAll(err.Error(), provision.Secret, "(the password)"))
		}
		time.Sleep(20 * time.Millisecond)
	}
	return target{
		url: good,
		refused: map[string]refusal{
			"another authority":    {with(good, "sslrootcert", certs.OtherCAFile), "certificate"},
			"another name":         {strings.Replace(good, "127.0.0.1", "127.0.0.2", 1), "127.0.0.2"},
			"no TLS":               {with(good, "sslmode", "disable", "sslrootcert", ""), "no encryption"},
			"a wrong password":     {as(good, "app", wrong), "28P01"},
			"no password":          {as(good, "app", ""), "28P01"},
			"no such user":         {as(good, "no-such-user", provision.Secret), "28P01"},
			"no right to a table":  {as(good, "stranger", provision.Secret), "42501"},
			"no right to others'":  {with(good, "table", "public.bystander"), "bystander"},
			"a table of no schema": {with(good, "table", "nowhere.interlock"), "nowhere"},
		},
		others: func(t *testing.T) []string {
			rows, err := admin.Query(t.Context(), `SELECT schemaname||'.'||tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog','information_schema','locks')
				UNION ALL SELECT 'bystander='||a FROM public.bystander UNION ALL SELECT 'role '||rolname FROM pg_roles ORDER BY 1`)
			if err != nil {
				t.Fatal(err)
			}
			return must[[]string](t)(pgx.CollectRows(rows, pgx.RowTo[string]))
		},
		params: []string{"prefix", "table", "application_name", "sslmode", "target_session_attrs"},
	}
}

func mysqlTarget(t *testing.T) target {
	certs := provision.TLS(t)
	s := provision.NewMySQL(t, provision.AnyMariaDB, provision.Options{TLS: certs})
	admin := provision.MySQLPool(t, s, nil)
	for _, sql := range []string{
		"CREATE USER app@'%' IDENTIFIED BY '" + provision.Secret + "'", "CREATE USER stranger@'%' IDENTIFIED BY '" + provision.Secret + "'",
		"GRANT ALL ON locks.* TO app@'%'", "CREATE TABLE bystander (a VARCHAR(20))", "INSERT INTO bystander VALUES ('alive')",
	} {
		if _, err := admin.ExecContext(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	good := with(as(s.URL(), "app", provision.Secret), "tls", "true", "tls_ca", certs.CAFile)
	return target{
		url: good,
		refused: map[string]refusal{
			// the rest of TLS and of rights is in integration/mysql
			"no TLS":           {with(good, "tls", "", "tls_ca", ""), s.Addr()},
			"a wrong password": {as(good, "app", wrong), "1045"},
			"no password":      {as(good, "app", ""), "1045"},
			"no such user":     {as(good, "no-such-user", provision.Secret), "1045"},
			"no right":         {as(good, "stranger", provision.Secret), "1044"},
		},
		others: func(t *testing.T) []string {
			rows, err := admin.QueryContext(t.Context(), `SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables
				WHERE table_schema NOT IN ('information_schema', 'mysql', 'sys', 'performance_schema') AND table_name NOT LIKE 'interlock%'
				UNION ALL SELECT CONCAT('bystander=', a) FROM bystander UNION ALL SELECT CONCAT('user ', user) FROM mysql.user ORDER BY 1`)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			var other []string
			for rows.Next() {
				var s string
				if err := rows.Scan(&s); err != nil {
					t.Fatal(err)
				}
				other = append(other, s)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			return other
		},
		params: []string{"prefix", "table", "tls"},
	}
}

func fileTarget(t *testing.T) target {
	root := t.TempDir()
	for _, name := range []string{"bystander", "deep/bystander"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte("alive"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return target{
		url: "file://" + root + "/deep/locks",
		others: func(t *testing.T) []string {
			var other []string
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				if d.IsDir() && d.Name() == "locks" {
					return fs.SkipDir
				}
				content, _ := os.ReadFile(path)
				other = append(other, path+"="+string(content))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return other
		},
		params: []string{"mode"},
	}
}

func memoryTarget(*testing.T) target {
	return target{url: "mem://security", others: func(*testing.T) []string { return []string{"nothing else is there"} }}
}
