package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/interlock-go/lock/backend"
)

// prepare creates the root and makes sure that flock excludes there.
func (b *Backend) prepare() error {
	// The existing part of the path is checked first, so that nothing is created on
	// a file system that is refused.
	have := b.root
	for {
		if _, err := os.Stat(have); err == nil || !errors.Is(err, fs.ErrNotExist) || have == filepath.Dir(have) {
			break
		}
		have = filepath.Dir(have)
	}
	if err := checkFS(have, b.allowFUSE); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(b.root), b.mode.Perm()); err != nil {
		return b.rootErr(err)
	}
	if err := b.makeRoot(); err != nil {
		return err
	}
	if err := checkFS(b.root, b.allowFUSE); err != nil {
		return err
	}
	f, err := os.Open(b.root)
	if err != nil {
		return b.rootErr(err)
	}
	defer f.Close()
	if _, err := tryFlock(f, shared); err != nil {
		return fmt.Errorf("directory %q: its file system does not support flock: %w: %w", b.root, errors.ErrUnsupported, err)
	}
	return b.touch()
}

func (b *Backend) rootErr(err error) error {
	return fmt.Errorf("lock directory %q must be a directory that this user can write to: %w", b.root, err)
}

// makeRoot creates the root if it is missing, and checks who can write to it.
func (b *Backend) makeRoot() error {
	info, err := os.Stat(b.root)
	if errors.Is(err, fs.ErrNotExist) {
		if err = b.build(b.root); err == nil {
			info, err = os.Stat(b.root)
		}
	}
	if err != nil {
		return b.rootErr(err)
	}
	if !info.IsDir() {
		return backend.Invalid("directory", b.root, "a directory, not another kind of file")
	}
	if found := b.unsafeRoot(info); found != "" {
		return backend.Invalid("directory", b.root, "one that only this user and root can change, or mode=2770 (WithMode) to share it with a group, mode=0777 with all users; "+found)
	}
	return nil
}

// unsafeRoot returns which user can change the root although the mode does not share it,
// "" if there is none.
func (b *Backend) unsafeRoot(info fs.FileInfo) string {
	uid, gid := ownerOf(info)
	mine, perm := trustedUser(uid), info.Mode().Perm()
	switch {
	case !mine && b.mode&0o022 == 0:
		return fmt.Sprintf("it belongs to user %d", uid)
	case perm&0o002 != 0 && b.mode&0o002 == 0:
		return "every user can write to it"
	// Where a user has a group of the same name, the umask leaves that group its permissions.
	case perm&0o020 != 0 && b.mode&0o022 == 0 && int(gid) != os.Getegid():
		return fmt.Sprintf("group %d can write to it", gid)
	}
	for path := b.root; path != filepath.Dir(path); path = filepath.Dir(path) {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if uid, _ := ownerOf(info); !trustedUser(uid) {
				return fmt.Sprintf("the symbolic link %q belongs to user %d", path, uid)
			}
		}
	}
	return ""
}

func trustedUser(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// touch checks that directories can be created in the root. It opens no file that exists:
// fs.protected_regular forbids that in a directory with the sticky bit.
func (b *Backend) touch() error {
	path := temporary(b.root)
	err := os.Mkdir(path, 0o700)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return b.rootErr(err)
	}
	return nil
}

const newPrefix = ".new-"

func temporary(dir string) string {
	return filepath.Join(dir, fmt.Sprintf(newPrefix+"%016x", rand.Uint64()))
}

// build creates a directory with empty files, all with exactly the mode, whatever the
// umask. The directory gets its name when it is complete. An existing one stays as it is.
func (b *Backend) build(path string, files ...string) error {
	temp := temporary(filepath.Dir(path))
	if err := os.Mkdir(temp, b.mode.Perm()); err != nil {
		return err
	}
	err := b.fill(temp, files)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.RemoveAll(temp)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (b *Backend) fill(path string, files []string) error {
	d, err := b.open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	for _, name := range files {
		f, err := d.create(name, os.O_RDWR|os.O_EXCL)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// directory is the open directory of a lock. The driver changes files only through it:
// another user who can replace directories by symbolic links cannot redirect it.
type directory struct {
	*os.Root
	mode fs.FileMode // of directories
}

// errReplaced: a file or directory was deleted or replaced while it was being opened.
var errReplaced = errors.New("deleted or replaced while it was opened")

// open opens a directory and never follows a symbolic link in its place.
func (b *Backend) open(path string) (*directory, error) {
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
	d := &directory{root, b.mode}
	info, err := root.Stat(".")
	if err == nil && !os.SameFile(info, named) {
		err = &fs.PathError{Op: "open", Path: path, Err: errReplaced}
	}
	if err == nil && info.Mode()&b.mode != b.mode {
		if f, err := root.Open("."); err == nil {
			repair(f, info, b.mode)
			f.Close()
		}
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return d, nil
}

// repair adds permissions that the umask or another mode has left out. It fails for
// a file of another user, who has chosen its mode.
func repair(f *os.File, info fs.FileInfo, mode fs.FileMode) { _ = f.Chmod(info.Mode().Perm() | mode) }

// create opens a file, which it creates with the mode of files, whatever the umask.
func (d *directory) create(name string, flags int) (*os.File, error) {
	mode := d.mode.Perm() & 0o666
	f, err := d.OpenFile(name, flags|os.O_CREATE|nonBlock, mode)
	if err != nil {
		return nil, d.full(err)
	}
	if info, err := f.Stat(); err == nil && info.Mode()&mode != mode {
		repair(f, info, mode)
	}
	return f, nil
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
		return &fs.PathError{Op: pe.Op, Path: filepath.Join(d.Name(), pe.Path), Err: pe.Err}
	}
	return err
}

// numbers returns the numbers of all tickets, live and dead, in order.
func (d *directory) numbers() ([]uint64, error) {
	f, err := d.read(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var ns []uint64
	for _, name := range names {
		if len(name) != numberLen {
			continue
		}
		if n, err := strconv.ParseUint(name, 10, 64); err == nil {
			ns = append(ns, n)
		}
	}
	slices.Sort(ns)
	return ns, nil
}

// alive reports whether the owner of a ticket still has its flock. An error does not
// mean that the ticket is dead.
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
