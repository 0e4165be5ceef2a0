package record

import (
	"maps"
	"sync"
	"time"
)

// freed remembers the records that this process has made free, and for which no process waited. If the process locks again,
// it writes the record without reading it first: if another client has written it, the service refuses the write. A process
// that was refused reads, until it finds a record as it has left it.
type freed struct {
	mu  sync.Mutex // guards all
	all map[string]left
}

// left is a record as this process has left it.
type left struct {
	version string
	token   uint64
	alone   bool      // no other client had written the record between the last two grants of this process
	until   time.Time // for as long as the lease would have lasted: a service that loses data may repeat versions
}

const mostFreed = 1 << 12

// add records a release.
func (f *freed) add(key string, r left) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[string]left{}
	}
	if _, known := f.all[key]; !known && len(f.all) >= mostFreed {
		now := time.Now()
		maps.DeleteFunc(f.all, func(_ string, r left) bool { return r.until.Before(now) })
		if len(f.all) >= mostFreed {
			clear(f.all)
		}
	}
	f.all[key] = r
}

// take returns the record of a key, and forgets it.
func (f *freed) take(key string) (r left, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok = f.all[key]
	delete(f.all, key)
	return r, ok && time.Now().Before(r.until)
}
