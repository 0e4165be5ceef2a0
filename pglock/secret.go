package pglock

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// maxHints is the number of statements that notifications may cause at once.
const maxHints = 16

// secretOf returns the secret of an attempt of this process. The row has its hash, in the
// entry of the attempt in the queue and beside its grant. The release of the attempt sends
// the secret to the next waiter, which has read that hash in the row: so the notification
// is of the holder that was ahead of it. A role that can read the table cannot know the
// secret before that.
func (b *Backend) secretOf(owner string) string {
	mac := hmac.New(sha256.New, b.secret)
	mac.Write([]byte(owner))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// hashOf returns the hash of a secret.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:16])
}
