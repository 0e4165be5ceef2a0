package protocol

import (
	"crypto/rand"
	"encoding/hex"
)

// Process identifies this process to others: by the prefix of its keys and a random
// process address.
type Process struct {
	Prefix, Address string
	counter         string // the fence counter, but in a cluster
}

// The first byte of a process address says how a script publishes to the process.
const (
	PublishAddress = "p" // PUBLISH
	ShardedAddress = "s" // SPUBLISH, in a cluster
)

// NewProcess returns a process with a random address of that kind.
func NewProcess(prefix, kind string) Process {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	counter := "{}:t"
	if prefix != "" {
		counter = "{" + prefix + ":}:t"
	}
	return Process{prefix, kind + hex.EncodeToString(id[:]), counter}
}

// ChannelPrefix returns the prefix of the channels of all processes.
func (p Process) ChannelPrefix() string {
	if p.Prefix == "" {
		return "@"
	}
	return p.Prefix + ":@"
}

// Channel returns the channel of this process. In a cluster see Keys.Channel.
func (p Process) Channel() string { return p.ChannelPrefix() + p.Address }

// Released returns the channel on which a node of a Redlock announces that a lock is released.
func (p Process) Released(lock string) string { return p.ChannelPrefix() + "r:" + lock }

// Marker returns the key of the marker of a node of a Redlock. No lock has it: no lock has an empty name.
func (p Process) Marker() string {
	if p.Prefix == "" {
		return "{}:born"
	}
	return "{" + p.Prefix + ":}:born"
}

// OwnerAddress returns the owner address of an attempt of this process.
func (p Process) OwnerAddress(owner string) string { return owner + "@" + p.Address }

const ownerAddressLen = 32 + 1 + 17

// ParseOwner splits the value of a lock, or a member of a queue, into its owner id and
// the text after the owner address. ok is false for a value of a foreign client.
func ParseOwner(s string) (owner, rest string, ok bool) {
	if len(s) < ownerAddressLen || s[32] != '@' || (s[33] != 'p' && s[33] != 's') ||
		!isHex(s[:32]) || !isHex(s[34:ownerAddressLen]) || (len(s) > ownerAddressLen && s[ownerAddressLen] != ' ') {
		return "", "", false
	}
	if len(s) > ownerAddressLen {
		rest = s[ownerAddressLen+1:]
	}
	return s[:32], rest, true
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}
