// Package queue is the waiting of a driver whose service keeps a queue and decides itself, in one atomic step, who
// holds a key. The driver implements [Service]: one round trip for each operation. [New] makes a backend.Backend of it,
// with waiting, readers, permits, batches and the cleaning up after unknown outcomes.
//
// # Model
//
// For each key the service has holders, a queue of waiters, and the last fencing token. It decides by its own clock.
// Every operation first removes the holders whose leases have ended, then does its own part, then admits: it grants the
// key to the head of the queue for as long as that fits beside the holders (see backend.Share.Fits).
//
// A grant to the attempt that has sent the request lasts for its TTL. A grant to another one is pushed: it is
// provisional, which means that it lasts for at most [ProvisionalTTL], until a request of the process of its attempt
// claims it. One after a provisional grant that has ended unclaimed is short ([Provisional]), as many processes may have
// stopped.
//
// The service knows of each waiter the process that it belongs to, and removes the waiters of a process that
// it knows to be dead:
//
//   - one that it cannot reach, if it can see that (a connection that has ended);
//   - one of which a provisional grant has ended unclaimed;
//   - one that was asked whether it is alive and has not sent a request for ProvisionalTTL. It is asked if its waiter is
//     the first and does not fit, and another attempt would fit beside the holders.
//
// A process whose waiters were removed without need gets an event, and enters them again, at the end of the queue.
//
// A key without holders and waiters forgets all but the last token and which attempts were ended with Late set. A process
// without events counts as one that can be reached.
//
// # Events
//
// The service reports events to the process of an attempt. An event may be late, or get lost; none is taken for the
// state of a lock but Granted, which carries the time until which it is valid.
//
//	Granted     the attempt has got a provisional grant
//	LeaseEnds   the lease that the attempt waits for ends at another time than it knows
//	Asked       the attempt is the first waiter, and is to ask, which shows that its process is alive
//	Removed     the attempt, and maybe others of its process, have no place any more
//	Lost        the grant of the attempt was broken
//
// LeaseEnds goes to the watcher: the first waiter of another process than the holder's. It asks when the lease ends,
// so a dead holder is noticed by one request. While a grant that was pushed is unclaimed there is no watcher: the process
// whose operation has pushed it looks when it ends. That process may end too, so the event also goes to the first waiter
// of another process, unless it waits for another unclaimed grant already, and, at most once in [InformEvery] and when a
// process calls Pass because it leaves, to one attempt of each process among the first [Informed].
//
// # Attempts
//
// An attempt has one of these states. What an event does depends on it alone:
//
//	          Granted        LeaseEnds  Asked            Removed  Lost           answer: holds  context ends
//	waiting   holding        asks       asks             asks     revoked        holding        ended
//	revoked   asks           asks       asks             asks     –              asks again     ended
//	holding   –              –          –                –        ended, OnLost  –              –
//	ended     it is released –          it is abandoned  –        –              –              –
//
// revoked: a grant of the attempt was broken before the attempt knew of it. Which one is not known, so the attempt
// asks.
//
// The attempts of a process that wait for one key are a line, in the order of the queue. Only the first asks, and
// there is one request in flight for a key and process: the service would grant the key to the first before the
// others, and one request shows that the process is alive. The others get their grants by events. In a line without
// events each attempt asks, with growing pauses.
//
// A Service that keeps no queue is [Unordered]. It has no model but that a free key is granted to the attempt that asks
// first; of the events it reports Lost, and Interrupted when a key was released.
//
// A request that had no answer may still be executed later. Its attempt ends by Abandon or Release with Late set, which
// makes the service refuse what arrives after it.
package queue
