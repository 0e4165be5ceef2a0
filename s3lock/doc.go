// Package s3lock is the S3 driver of package lock. It works with Amazon S3 and with other stores that
// have atomic conditional writes.
//
//	import _ "github.com/interlock-go/lock/s3lock"
//
//	c, err := lock.Open(ctx, "s3://bucket/prefix?region=eu-central-1&ttl=5m")
//
// [New] uses a client of the caller, and never closes it.
//
// # URL
//
//	s3://[id:secret@]bucket[/prefix][?param=value&...]
//
// The default prefix is "lock". The user and password are the id of an access key and its secret,
// percent-encoded. Without them the SDK finds the credentials: in the environment, in the files of a
// profile, from the roles of a container or machine. Parameters, beside those of package lock:
//
//	endpoint=https://host:port     the store, if it is not that of AWS
//	region=eu-central-1            else that of the SDK; us-east-1 with an endpoint
//	path_style=true                the bucket in the path and not in the host; true with an endpoint
//	timeout=5s                     limit of each request
//	poll=1s                        see [WithPoll]
//	tls_ca, tls_cert, tls_key, tls_server_name     file names of PEM, and a host name
//
// # Guarantees
//
// At most one client holds a lock. A lock is one object, which is written only with the conditions
// If-Match and If-None-Match: package record of package backend has the protocol. No clock of the
// service ends a lease, and a late request is refused, because the object has another ETag.
//
// An acquire reads and writes the object, a renewal and a release write it. Waiters poll;
// those of one process wait one after the other, and processes take turns. The fencing token is counted in the object,
// which stays after the release.
//
// # Limits
//
// Opening refuses a store that ignores the conditions. It cannot find one that checks a condition and
// then writes, so that two writes succeed: docs/backends/s3.md lists the stores that were tested.
//
// The lock of a process that died is free for a client that has itself seen it unchanged for a TTL: by
// Lock, or by calls of TryLock. A process that calls TryLock once and ends needs a wait limit of more than the TTL.
//
// A program that deletes the object of a lock, or a lifecycle rule that does, frees the lock. The
// token then begins with the clock of a client, in microseconds.
//
// The least TTL is one second. It should be several times what a slow request takes: the default
// of 30 s, or minutes, which cost less. There is no notification and no lock for readers or permits.
package s3lock
