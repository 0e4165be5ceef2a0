package filelock

import (
	"errors"
	"fmt"
	"syscall"
)

// remote lists the file systems on which flock is not known to exclude every process that can reach the directory, or
// where inotify does not see what other machines do.
var remote = map[uint32]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x00c36400: "Ceph",
	0x5346414f: "AFS", 0x6b414653: "AFS", 0x73757245: "Coda", 0x564c: "NCP", 0x01021997: "9P",
	0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x7461636f: "OCFS2", 0x01161970: "GFS2", 0xaad7aaea: "PanFS",
	0x19830326: "BeeGFS", 0xbacbacbc: "a VMware shared folder", 0x786f4256: "a VirtualBox shared folder",
	0x7c7c6673: "a Parallels shared folder",
}

const fuse = 0x65735546

func checkFS(path string, allowFUSE bool) error {
	var st syscall.Statfs_t
	err := syscall.Statfs(path, &st)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Statfs(path, &st)
	}
	if err != nil {
		return fmt.Errorf("file system of %q: %w", path, err)
	}
	return refuse(path, uint32(st.Type), allowFUSE) // 32 bits wide and signed on some machines
}

func refuse(path string, kind uint32, allowFUSE bool) error {
	if kind == fuse && !allowFUSE {
		return fmt.Errorf("file locks %w in %q: it is on FUSE, which may be remote; if it is local and supports flock, "+
			"allow=fuse (WithFUSE) accepts it", errors.ErrUnsupported, path)
	}
	if name := remote[kind]; name != "" {
		return errRemote(path, name+", ")
	}
	return nil
}
