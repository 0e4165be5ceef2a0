package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// store keeps a number. Reading and writing are atomic each, and not together.
type store interface {
	io.Closer
	Read(ctx context.Context) (int, error)
	Write(ctx context.Context, n int) error
}

// openStore opens a path, or the Redis server of a URL, whose parameters (those of
// the lock) it leaves alone.
func openStore(where string) (store, error) {
	if !strings.Contains(where, "://") {
		return fileStore(where), nil
	}
	u, err := url.Parse(where)
	if err != nil || !isRedis(where) {
		return nil, errors.New("-store: want a path, or a redis:// or rediss:// URL")
	}
	u.RawQuery = ""
	opts, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, errors.New("-store: malformed redis:// URL") // err may quote a password
	}
	return &redisStore{redis.NewClient(opts)}, nil
}

// isRedis tells whether a URL is that of one Redis server.
func isRedis(where string) bool {
	return strings.HasPrefix(where, "redis://") || strings.HasPrefix(where, "rediss://")
}

// fileStore is a number in a file.
type fileStore string

func (s fileStore) Read(context.Context) (int, error) {
	text, err := os.ReadFile(string(s))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// Write replaces the file, so that nobody reads half a number.
func (s fileStore) Write(_ context.Context, n int) error {
	f, err := os.CreateTemp(filepath.Dir(string(s)), "number-")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, n)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), string(s))
}

func (s fileStore) Close() error { return nil }

// redisStore is a number under a key of a Redis server.
type redisStore struct{ c *redis.Client }

const redisKey = "interlock-example-counter"

func (s *redisStore) Read(ctx context.Context) (int, error) { return s.c.Get(ctx, redisKey).Int() }
func (s *redisStore) Write(ctx context.Context, n int) error {
	return s.c.Set(ctx, redisKey, n, 0).Err()
}
func (s *redisStore) Close() error { return s.c.Close() }
