//go:build unix && !linux

package filelock

import "testing"

func (*Backend) watches() int { return 0 }

func withoutEvents(*testing.T, *Backend) {}
