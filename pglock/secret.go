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

// follows keeps the proof of the attempt ahead of one that has entered the queue.
func (s *service) follows(owner, proof string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if proof != "" {
		s.ahead[owner] = proof
	}
}

// forget is called when an attempt does not wait any more.
func (s *service) forget(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ahead, owner)
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
	if ahead := s.ahead[owner]; this != s.proved && (ahead == "" || hashOf(secret) != ahead) {
		s.proved = proof{}
		return false
	}
	delete(s.ahead, owner)
	s.proved = this
	return true
}
