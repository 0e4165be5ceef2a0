//go:build !unix

package measure

import "time"

func processorTime() (time.Duration, bool) { return 0, false }
