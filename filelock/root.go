package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/interlock-go/lock/backend"
)

// prepare creates the root and makes sure that flock excludes there.
func (b *Backend) prepare() error {
	// The existing part of the path is checked first, so that nothing is created on a file system that is refused.
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
		if err = b.build(b.root, false); err == nil {
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
		return backend.Invalid("directory", b.root, "one that only this user and root can change, or mode=2770 (WithMode) "+
			"to share it with a group, mode=0777 with all users; "+found)
	}
	return nil
}

// unsafeRoot returns which user can change the root although the mode does not share it, "" if there is none.
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

// touch checks that directories can be created in the root. It opens no file that exists: fs.protected_regular
// forbids that in a directory with the sticky bit.
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

// build creates a directory, and its fence, with exactly the mode, whatever the umask. The directory gets its name
// when it is complete. An existing one stays as it is.
func (b *Backend) build(path string, withFence bool) error {
	temp := temporary(filepath.Dir(path))
	if err := os.Mkdir(temp, b.mode.Perm()); err != nil {
		return err
	}
	d, err := b.openDirectory(temp, withFence)
	if err == nil {
		d.close()
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
