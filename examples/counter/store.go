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

// store has a number. Read and Write are atomic, but not a Read followed by a Write.
type store interface {
	io.Closer
	Read(ctx context.Context) (int, error)
	Write(ctx context.Context, n int) error
}

// openStore opens a path, or the Redis server of a URL. It ignores the parameters of the
// URL, which are those of the lock.
func openStore(location string) (store, error) {
	if !strings.Contains(location, "://") {
		return fileStore(location), nil
	}
	u, err := url.Parse(location)
	if err != nil || !isRedis(location) {
		return nil, errors.New("-store: want a path, or a redis:// or rediss:// URL")
	}
	u.RawQuery = ""
	opts, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, errors.New("-store: malformed redis:// URL") // err may quote a password
	}
	return &redisStore{redis.NewClient(opts)}, nil
}

// isRedis reports whether location is the URL of one Redis server.
func isRedis(location string) bool {
	return strings.HasPrefix(location, "redis://") || strings.HasPrefix(location, "rediss://")
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

// Write replaces the file atomically.
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
