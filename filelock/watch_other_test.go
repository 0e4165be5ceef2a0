//go:build unix && !linux

package filelock

func (*Backend) watches() int { return 0 }
