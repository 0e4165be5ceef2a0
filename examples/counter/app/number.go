package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// numberFile is the path of a file with a number. A read and a write are atomic, but not a read followed by a write.
type numberFile string

func (f numberFile) read() (int, error) {
	text, err := os.ReadFile(string(f))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// write replaces the file.
func (f numberFile) write(n int) error {
	temp, err := os.CreateTemp(filepath.Dir(string(f)), "number-")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(temp, n)
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), string(f))
}
