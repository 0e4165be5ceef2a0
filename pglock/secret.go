package pglock

import (
	"crypto/sha256"
	"encoding/hex"
)

// secretOf returns the secret of an attempt of this process. The row of the attempt has its hash, the proof. An attempt
// that enters the queue gets the proof of the one ahead of it, whose release reveals the secret in the notification to the
// next holder: so the notification is of the attempt that was ahead. A role that can read the tables cannot know the
// secret before that. A grant that is notified in another way is asked for.
func (s *service) secretOf(owner string) string {
	return hashOf(s.secret + owner)
}

// hashOf returns the hash of a secret.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:16])
}

// known is what the service knows of an attempt that waits or holds.
type known struct {
	key   string
	ahead string // the proof of the attempt ahead of it in the queue, if the attempt waits
	heard bool   // a secret came that proves nothing: it is public, and the next answer may have its hash
}

// asks is called before an attempt asks for a place in the queue, and reports whether it is new.
func (s *service) asks(owner, key string) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[owner]; ok {
		return false
	}
	s.known[owner] = known{key: key}
	return true
}

// follows keeps the proof of the attempt ahead of one that has entered the queue.
func (s *service) follows(owner, key, proof string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := known{key, proof, s.known[owner].heard}
	if k.heard {
		k.ahead = ""
	}
	s.known[owner] = k
}

// holds is called when an attempt has been granted its key.
func (s *service) holds(owner, key string) { s.follows(owner, key, "") }

// forget is called when an attempt has ended.
func (s *service) forget(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, owner)
}

// knows reports whether an attempt waits for key or holds it.
func (s *service) knows(owner, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[owner].key == key
}

// proof is the secret that the last grant has proved, and the session of the server that sent it.
type proof struct {
	sender uint32
	secret string
}

// proves reports whether secret is that of the attempt ahead. It proves one notification, and those of other attempts that
// the same session sends right after it, as a release does that grants several shares: it is public from then on.
func (s *service) proves(sender uint32, owner, secret string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	this := proof{sender, secret}
	k, waits := s.known[owner]
	proved := waits && (this == s.proved || k.ahead != "" && hashOf(secret) == k.ahead)
	if waits {
		s.known[owner] = known{key: k.key, heard: true}
	}
	if s.proved = this; !proved {
		s.proved = proof{}
	}
	return proved
}
