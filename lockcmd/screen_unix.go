//go:build unix

package lockcmd

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// terminalSize returns the columns and lines of a terminal, 0 if unknown.
func terminalSize(f *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// hasEscapes reports whether f is a terminal that interprets escape sequences.
func hasEscapes(f *os.File) bool { return isTerminal(f) }

// keyMode makes a terminal pass on each key at once and unechoed. ok is false if f is no
// terminal or belongs to another process group.
func keyMode(f *os.File) (restore func(), ok bool) {
	fd := int(f.Fd())
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return nil, false
	}
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return nil, false
	}
	mode := *before
	mode.Lflag &^= unix.ICANON | unix.ECHO
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, setTermios, &mode) != nil {
		return nil, false
	}
	return func() { _ = unix.IoctlSetTermios(fd, setTermios, before) }, true
}
