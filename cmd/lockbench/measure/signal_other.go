//go:build !unix

package measure

import (
	"errors"
	"os"
)

const canStop = false

func stopProcess(*os.Process) error { return errors.ErrUnsupported }
