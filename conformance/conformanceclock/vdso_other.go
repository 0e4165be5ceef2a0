//go:build !linux || !(amd64 || arm64)

package conformanceclock

const supported = false
