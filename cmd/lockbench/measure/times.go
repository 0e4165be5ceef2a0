package measure

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Times is an HDR histogram of durations: three significant digits from 100 ns to 10
// minutes. Its JSON form is the base64 encoding that HDR tools read.
type Times struct{ h *hdrhistogram.Histogram }

func newTimes() *Times {
	return &Times{hdrhistogram.New(100, int64(10*time.Minute), 3)}
}

func (t *Times) add(d time.Duration) {
	_ = t.h.RecordValue(min(max(int64(d), 100), int64(10*time.Minute))) // in range
}

func (t *Times) merge(o *Times) { t.h.Merge(o.h) }

// Count returns the number of durations.
func (t *Times) Count() int64 { return t.h.TotalCount() }

// At returns a percentile, zero without durations.
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
