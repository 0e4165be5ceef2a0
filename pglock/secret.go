package pglock

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"time"
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
	key    string
	ahead  string // the proof of the attempt ahead of it in the queue, if the attempt waits
	public bool   // a secret came, which others know too, and the next answer may have its hash
}

// asks is called before a request of an attempt, and reports whether it is the first.
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
	k := known{key, proof, s.known[owner].public}
	if k.public {
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

// isOther reports whether an attempt waits for another key than this one, or holds it.
func (s *service) isOther(owner, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.known[owner]
	return ok && k.key != key
}

// sessionTrust is how long a session of the server is known after its last sign. Another role could get its number later.
const sessionTrust = 2 * time.Second

// session is one of the server that sends notifications about true grants. Its number, which the server adds to them,
// cannot be forged.
type session struct {
	own    bool   // of this process
	secret string // else: that it has proved a grant with
	until  time.Time
}

// used notes that a request of this process uses a session.
func (s *service) used(number uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trustLocked(number, session{own: true})
}

func (s *service) trustLocked(number uint32, as session) {
	as.until = time.Now().Add(sessionTrust)
	if len(s.sessions) > 1000 {
		maps.DeleteFunc(s.sessions, func(_ uint32, of session) bool { return time.Now().After(of.until) })
	}
	s.sessions[number] = as
}

// proves reports whether a grant is certain. The secret of the attempt ahead proves one, and others that the same session
// sends with it, as a release does that grants several shares. It is public from then on. A session of this process
// needs none.
func (s *service) proves(sender uint32, owner, secret string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, waits := s.known[owner]
	if !waits {
		return false
	}
	s.known[owner] = known{key: k.key, public: true}
	of := s.sessions[sender]
	if time.Now().Before(of.until) && (of.own || secret != "" && of.secret == secret) {
		return true
	}
	if secret == "" || k.ahead == "" || hashOf(secret) != k.ahead {
		return false
	}
	s.trustLocked(sender, session{secret: secret})
	return true
}
