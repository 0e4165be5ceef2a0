// Package natslock is the NATS driver of package lock. It keeps locks in a key-value bucket of
// JetStream, and works with servers from 2.9, and from 2.11 with a bucket that has replicas.
//
//	import _ "github.com/interlock-go/lock/natslock"
//
//	c, err := lock.Open(ctx, "nats://n1:4222,n2:4222,n3:4222/locks?replicas=3&ttl=30s")
//
// [New] uses a connection of the caller, and never closes it.
//
// # URL
//
//	nats://[user:password@|token@]host[:port][,host[:port]...][/bucket][?param=value&...]
//	natss://...                    the same over TLS
//
// The default port is 4222, the default bucket "locks". Parameters, beside those of package
// lock:
//
//	timeout=2s        limit to connect, and of each request; 10ms to 1m
//	replicas=1        of a bucket that is created: 1 to 5
//	max_bytes=0       see [WithMaxBytes]
//	domain=           see [WithDomain]
//	creds=            file name of credentials (JWT and seed), instead of a user
//	nkey=             file name of the seed of an NKey, instead of a user
//	tls=false         TLS with nats://
//	tls_ca, tls_cert, tls_key, tls_server_name     file names of PEM, and a host name
//
// A bucket that is absent is created: file storage, one record a key, and records that were
// not written for 25 hours are removed. The servers republish each change of the bucket on
// the subjects interlock.BUCKET.>, to which waiters subscribe; a bucket that does not is refused,
// and so is one with another setting that the protocol needs.
//
// # Guarantees
//
// At most one client holds a key, by the consensus of the stream's servers: each change is a
// write that the stream accepts only if the key has the revision that the client has read. Package record of
// package backend has the protocol. No clock of a server ends a lease, unless it jumps forward by the maximum
// age of the bucket less the TTL. An acquire takes two round trips, a renewal and a release one.
//
// A waiter is notified of each change of its key, and reads it: a notification is not believed. Waiters
// of one process wait in line, and one of them subscribes. Processes that wait take turns, see package record.
//
// The fencing token is the revision of the record with which the lock was acquired. A bucket that
// this package creates begins with the microseconds of the Unix epoch (servers from 2.10), so that
// tokens rise even if the bucket was deleted.
//
// # Permissions
//
// For the bucket "locks":
//
//	publish    $JS.API.STREAM.INFO.KV_locks, $JS.API.STREAM.MSG.GET.KV_locks, $KV.locks.>
//	           $JS.API.STREAM.CREATE.KV_locks                to create the bucket
//	           $JS.API.CONSUMER.CREATE.KV_locks.>, $JS.API.CONSUMER.MSG.NEXT.KV_locks.>,
//	           $JS.API.CONSUMER.DELETE.KV_locks.>            for List
//	subscribe  _INBOX.>, interlock.locks.>, $JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.KV_locks
//
// # Limits
//
// Servers write to the disk every two minutes unless sync_interval is set: a power failure of the
// machine of a single server, or of a majority, may lose locks and repeat tokens. The end of a
// process of a server loses nothing.
//
// The lock of a process that died is free for a client that has itself seen it unchanged for a TTL: by
// Lock, or by calls of TryLock. A process that calls TryLock once and ends needs a wait limit of more than the TTL.
package natslock
