// Package filelock is the driver for locks between the processes of one machine.
// It needs no server: a directory on a local file system and flock(2) are enough.
//
// # URL
//
//	file:///absolute/directory?prefix=shop
//	file:relative/directory
//
// The directory is created if it is missing. Parameters:
//
//	prefix=P     separates the locks of one application from others in the directory
//	mode=0700    permissions, in octal, of directories that are created; files get
//	             the same without execution. 2770 shares the locks within a group.
//	allow=fuse   accepts a directory on FUSE, which must be local and support flock
//
// # Guarantees
//
//   - The kernel frees the lock when the process that holds it ends in whatever way,
//     at once. There is no TTL and nothing to renew; Renew only verifies.
//   - Waiters are served in the order of arrival, across processes. One release wakes
//     one waiter: on Linux at once through inotify, elsewhere by a look at one file
//     every 20 to 50 ms. If the system's inotify limits are exhausted Linux falls back
//     to that as well.
//   - Fencing tokens rise strictly per lock, over restarts of everything. They are
//     ticket numbers, at least the time in microseconds, so they rise even when the
//     directory was deleted, unless the clock was also set back.
//   - A process killed at any point leaves nothing but files that the next comer
//     removes. A full disk is an error and never a grant.
//   - On Linux a holder whose lock is broken is told at once.
//
// # Traps
//
//   - A stopped process (SIGSTOP, a debugger, a laptop asleep) keeps its lock and its
//     place in the queue. One that is frozen in the few microseconds of a critical
//     section keeps others from taking that lock until it runs again or dies.
//   - Each name leaves a small directory behind, with the counter of its tokens. It may
//     be deleted while nobody holds or waits. Deleting it earlier breaks the lock.
//   - Making and deleting files is what a lock costs. ext4 slows down to a millisecond
//     for each when thousands are made and deleted in seconds; a directory in memory
//     (tmpfs, such as below /run) does not, and loses nothing that matters.
//   - Network file systems are refused: flock does not reach other machines there, or
//     only sometimes. Containers exclude each other if they mount one local directory
//     of one kernel.
//   - Whoever may write to the directory may take, break and block every lock in it.
//
// # Protocol
//
// Each name has a directory, which holds the file "fence" and a ticket file for each
// attempt that waits or holds, named by its number. A flock on fence is the guard: it
// makes a critical section in which the next number, max(last+1, highest+1, Unix
// microseconds), is drawn and the ticket made. Whoever makes a ticket keeps it open
// with an exclusive flock for as long as he waits or holds; a ticket without a flock is
// that of a dead process. The holder is the lowest live ticket. A waiter watches the
// next lower live ticket, and nothing else.
//
// Whether a ticket lives is found out by trying a shared flock on a file description of
// one's own, opened only for reading, for an instant. That is sound for these reasons.
// Only the owner ever asks for the exclusive flock, once, on a file that has no ticket
// name yet: it is renamed to that name when the flock is held. So a probe can neither
// come between the making of a ticket and its flock, and call a living ticket dead, nor
// take the flock away from its owner. Two probes do not disturb each other, because
// shared flocks agree, so a probe never makes another see life in a dead ticket. A dead
// ticket stays dead, since nobody flocks an existing one, and numbers are not reused;
// so a waiter that has found no live ticket below its own holds the lock from then on,
// guard or not, because later tickets have greater numbers. Only removing the dead
// needs the guard, and only because whoever holds it may rely on the directory. A probe
// opens without write access, so closing it does not look like an owner's death to
// those who watch for IN_CLOSE_WRITE. The kernel reports that event before it drops the
// flock of the dying; therefore a waiter that was woken and finds its predecessor alive
// looks again after 50 µs, 100 µs and so on before it sleeps. An owner that leaves
// unlinks its ticket first, which is reported at once (IN_ATTRIB) and cannot be undone.
package filelock
