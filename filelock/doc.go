// Package filelock is the driver for locks between the processes of one machine. It needs no server, only a directory
// on a local file system and flock(2).
//
// # URL
//
//	file:///absolute/directory?prefix=shop
//	file:relative/directory
//
// The directory is created if it is missing. Parameters:
//
//	prefix=P     separates the locks of one application from others in the directory
//	mode=0700    permissions, in octal, of directories that are created; files get the same without execution. 2770
//	             shares the locks within a group, 0777 with all users.
//	retention=24h  how long the directory of a name is kept after its last grant, at least 1m; 0 keeps all, see
//	             WithRetention
//	inherit=true   programs that this process starts keep its locks, see WithInheritance
//	allow=fuse   accepts a directory on FUSE, which must be local and support flock; on macOS and BSD also one on any
//	             network file system
//
// # Guarantees
//
//   - The kernel frees the lock as soon as the process of the holder ends, in any way. There is no TTL, and nothing
//     to renew: Renew only verifies.
//   - Waiters are served in the order of arrival, across processes. One release wakes one waiter, and all readers
//     behind a writer: on Linux at once through inotify, elsewhere, and if the inotify limits of the system are
//     exhausted, by a look at one file every 20 to 50 ms.
//   - Readers and permits of semaphores are granted in the same order. The end of a process frees its share alone.
//   - Fencing tokens rise strictly for each lock, also over a restart of the machine. They are ticket numbers of at
//     least the time in microseconds, so they also rise after a power failure, which may undo the last changes of the
//     counter, and if the directory was deleted, unless the clock was set back as well.
//   - A process that is killed leaves only files that the next request removes. A full disk is an error and never a
//     grant.
//   - On Linux a holder whose lock is broken is notified at once, in the first 20 ms of its lease at their end.
//
// # Limits
//
//   - A stopped process (SIGSTOP, a debugger, a suspended laptop) keeps its lock and its place in the queue. If it is
//     stopped in the critical section, which takes a few microseconds, no other process can take that lock until it
//     runs or dies.
//   - A request for permits that is not behind a waiter reads one file for each holder.
//   - A waiter for permits that is stopped just as it is granted does not wake the next waiter, which notices within
//     a minute that more permits are free.
//   - Each name leaves a small directory with the counter of its tokens, which open Backends remove after the
//     retention. It may be deleted when the lock is free and has no waiters. Deleting it earlier breaks the lock.
//   - The cost of a lock is the creation and deletion of a file. On ext4 that takes up to a millisecond when
//     thousands of files come and go in seconds; a directory in memory (tmpfs, for example below /run) stays fast,
//     and nothing of value is lost.
//   - Network file systems are refused: flock does not reliably exclude other machines there. Containers exclude each
//     other if they mount one local directory of one kernel.
//   - Every user that may write to the directory may take, break and block its locks. So a directory that another
//     user than root can change is refused, unless mode shares it. Such a user cannot make the driver write or delete
//     outside of the directory: it follows no link below it.
//
// # Protocol
//
// Each name has a directory with the file "fence" and one ticket file for each attempt that waits or holds, named by
// its number. A flock on fence is the guard of a critical section, in which an attempt draws the next number,
// max(last+1, highest+1, Unix microseconds), and makes its ticket. The owner of a ticket keeps it open with an
// exclusive flock as long as it waits or holds; a ticket without a flock is dead. The holder is the owner of the
// lowest live ticket. A waiter watches the next lower live ticket only. If that ends and is the last one that was
// granted, which the holder notes in fence, no live ticket is left below. Else the waiter reads the directory. An
// arrival reads it only if the last number drawn is no live ticket, or was granted alone. So a cycle costs the same
// for each number of waiters.
//
// A ticket contains its share: all of the lock, that of a reader, or permits. The holders are the first of the live
// tickets, as many as package backend admits. A reader watches the nearest ticket below that is no reader's, the
// first waiter for permits the directory, the others the ticket below until it was granted. Permits are granted when
// their slots are written, within the guard, in the ticket. A downgrade writes another share behind the first one,
// which counts then.
//
// A probe of a ticket opens the file for reading and tries a shared flock. Probes are sound for these reasons:
//
//   - The owner asks for the exclusive flock once, when it makes the ticket. Until then the ticket looks dead. But
//     the dead are removed within the guard or by the owner of a later ticket, and no later one exists. If a probe of
//     Inspect comes in the moment before and keeps the flock from the owner, the owner makes another ticket.
//   - Two probes do not exclude each other, so a dead ticket never looks alive.
//   - A dead ticket stays dead, and numbers are not reused. So a waiter that finds no live ticket below its own holds
//     the lock, with or without the guard. The removal of dead tickets needs the guard or a live ticket above them.
//   - A probe opens without write access, so its close is not an IN_CLOSE_WRITE event.
//   - The kernel reports the close of a dying process before it drops the flock. So a waiter that was woken and finds
//     its predecessor alive looks again after 50 µs, 100 µs and so on. An owner that leaves removes its ticket first
//     (IN_ATTRIB).
package filelock
