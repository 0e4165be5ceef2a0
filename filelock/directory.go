package filelock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
)

const (
	fenceFile = "fence"
	maxOpen   = 64 // directories that stay open, with three files each, while no request uses them
)

// directory is the open directory of a lock. The driver changes files only through it: another user who can replace
// directories by symbolic links cannot redirect it. A Backend has one for each lock in use.
type directory struct {
	*os.Root
	path  string
	mode  fs.FileMode   // of directories
	turn  chan struct{} // has a value while no goroutine of this Backend has the guard
	fence *os.File      // nil while the directory is made
	info  fs.FileInfo   // of fence

	listing sync.Mutex // guards the offset of list
	list    *os.File   // the directory itself

	users int // guarded by Backend.mu
}

// errReplaced: a file or directory was deleted or replaced while it was being opened, or since.
var errReplaced = errors.New("deleted or replaced while it was opened")

// use returns the directory of a lock. It may have been replaced since it was opened, see verify. The caller calls
// leave.
func (b *Backend) use(path string) (*directory, error) {
	b.mu.Lock()
	d := b.open[path]
	if d != nil {
		d.users++
	}
	b.mu.Unlock()
	if d != nil {
		return d, nil
	}
	d, err := b.openDirectory(path, true)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.open[path]; other != nil {
		d.close()
		d = other
	}
	b.open[path] = d
	d.users++
	return d, nil
}

// leave ends the use of a directory. It closes those that are not used, if they are many or were replaced.
func (b *Backend) leave(d *directory, replaced bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.users--
	if replaced && b.open[d.path] == d {
		delete(b.open, d.path)
	}
	if d.users == 0 && b.open[d.path] != d {
		d.close()
	}
	for path, other := range b.open {
		if len(b.open) <= maxOpen {
			return
		}
		if other.users == 0 {
			delete(b.open, path)
			other.close()
		}
	}
}

// openDirectory opens a directory, and never follows a symbolic link in its place.
func (b *Backend) openDirectory(path string, withFence bool) (*directory, error) {
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !named.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("want a directory, not %v", named.Mode().Type())}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	d := &directory{Root: root, path: path, mode: b.mode, turn: make(chan struct{}, 1)}
	d.turn <- struct{}{}
	if err := d.openFiles(named, withFence); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// openFiles opens the files of a directory, which must be the one that was named.
func (d *directory) openFiles(named fs.FileInfo, withFence bool) (err error) {
	if d.list, err = d.read("."); err != nil {
		return err
	}
	info, err := d.list.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, named) {
		return &fs.PathError{Op: "open", Path: d.path, Err: errReplaced}
	}
	repair(d.list, info, d.mode)
	if !withFence {
		return nil
	}
	if d.fence, d.info, err = d.create(fenceFile, os.O_RDWR); err == nil && linksOf(d.info) > 1 {
		err = fmt.Errorf("%s has another hard link: it is not a file of this library", d.fence.Name())
	}
	return err
}

func (d *directory) close() {
	for _, f := range []*os.File{d.list, d.fence} {
		if f != nil {
			f.Close()
		}
	}
	d.Close() // the Root
}

// verify checks that other processes, which open the path, find this fence.
func (d *directory) verify() error {
	now, err := os.Lstat(d.fence.Name())
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, d.info) {
		return errReplaced
	}
	return err
}

// repair adds permissions that the umask or another mode has left out. It fails for a file of another user, who has
// chosen its mode.
func repair(f *os.File, info fs.FileInfo, mode fs.FileMode) {
	if info.Mode()&mode != mode {
		_ = f.Chmod(info.Mode().Perm() | mode)
	}
}

// create opens a file, which it creates with the mode of files, whatever the umask.
func (d *directory) create(name string, flags int) (*os.File, fs.FileInfo, error) {
	mode := d.mode.Perm() & 0o666
	f, err := d.OpenFile(name, flags|os.O_CREATE|nonBlock, mode)
	if err != nil {
		return nil, nil, d.full(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	repair(f, info, mode)
	return f, info, nil
}

// read opens a file for reading.
func (d *directory) read(name string) (*os.File, error) {
	f, err := d.OpenFile(name, os.O_RDONLY|nonBlock, 0)
	return f, d.full(err)
}

// remove deletes a file if it exists.
func (d *directory) remove(name string) error {
	if err := d.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.full(err)
	}
	return nil
}

// full returns an error of os.Root with the whole path.
func (d *directory) full(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return &fs.PathError{Op: pe.Op, Path: filepath.Join(d.path, pe.Path), Err: pe.Err}
	}
	return err
}

// numbers returns the numbers of the tickets below a number, live and dead, in order. A directory that was deleted
// has none.
func (d *directory) numbers(below uint64) (ns []uint64, err error) {
	d.listing.Lock()
	defer d.listing.Unlock()
	names := []string(nil)
	if _, err = d.list.Seek(0, io.SeekStart); err == nil {
		names, err = d.list.Readdirnames(-1)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range names {
		if len(name) != numberLen {
			continue
		}
		if n, err := strconv.ParseUint(name, 10, 64); err == nil && n < below {
			ns = append(ns, n)
		}
	}
	slices.Sort(ns)
	return ns, nil
}

// alive reports whether the owner of a ticket still has its flock. An error does not mean that the ticket is dead.
func (d *directory) alive(number uint64) (bool, error) {
	f, err := d.openLive(number)
	if f != nil {
		f.Close()
	}
	return f != nil, err
}

// openLive opens a ticket for reading. If the ticket is dead, the file is nil.
func (d *directory) openLive(number uint64) (*os.File, error) {
	f, err := d.read(ticketName(number))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	free, err := tryFlock(f, shared)
	if !free && err == nil {
		return f, nil
	}
	if free {
		unflock(f)
	}
	f.Close()
	return nil, err
}
