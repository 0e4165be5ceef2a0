package measure

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Times are durations, kept as an HDR histogram: three significant digits from
// 100 ns to 10 minutes. In JSON they are the histogram's own base64 encoding, which
// any HDR tool reads.
type Times struct{ h *hdrhistogram.Histogram }

func newTimes() *Times {
	return &Times{hdrhistogram.New(100, int64(10*time.Minute), 3)}
}

func (t *Times) add(d time.Duration) {
	_ = t.h.RecordValue(min(max(int64(d), 100), int64(10*time.Minute))) // in range
}

func (t *Times) merge(o *Times) { t.h.Merge(o.h) }

// Count is how many there are.
func (t *Times) Count() int64 { return t.h.TotalCount() }

// At returns the time that a percentage of them does not exceed, zero if there is none.
func (t *Times) At(percent float64) time.Duration {
	if t.Count() == 0 {
		return 0
	}
	return time.Duration(t.h.ValueAtPercentile(percent))
}

// MarshalJSON implements json.Marshaler.
func (t *Times) MarshalJSON() ([]byte, error) {
	b, err := t.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, err
	}
	return json.Marshal(string(b))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Times) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	h, err := hdrhistogram.Decode([]byte(s))
	if err != nil {
		return fmt.Errorf("HDR histogram: %w", err)
	}
	t.h = h
	return nil
}
