// Package places is the waiting of a driver whose service keeps an ordered list of places for each key, in which every
// client decides by itself who holds the key: a node or a key under a session, a file of a living process. The driver
// implements [Service]: put, read, watch, update and remove places. [New] makes a backend.Backend of it, with waiting,
// readers, permits, renewal, breaking and the cleaning up after unknown outcomes.
//
// # Model
//
// A place belongs to an attempt and has a position, its order, which is greater than that of every earlier place of the
// key. The first places of a queue hold the key, as many as backend.Admitted says. The places before a place only become
// fewer. So a place that holds does so until it ends, and an old copy of the queue is late, and never wrong: the places
// in it that have not ended are all that can be before.
//
// Places end with their [Session], which the attempts of a client with one TTL share. It says until when its places are
// certain, counted from before the last request that the service has answered. When a session ends, its holders have
// lost their keys, and its waiters put new places with another session.
//
// # Waiting
//
// The attempts of a process that wait for one key are a line, in the order of their places. If the Service is a [Viewer]
// and few sessions have places, the line follows the queue: it reads that once, and events keep it complete. So an attempt
// is granted by the event that leaves only holders before it. Each process gets each event, which many processes cannot
// afford. Then, and without a Viewer, only the first of the line acts, and what it reads serves the others. It watches what
// it waits for:
//
//	exclusive  the last two places before it
//	reader     the last two before it that are not of readers
//	permits    the place before it; as the first or the second that does not fit, the end of any place of the key
//	all        their own place
//
// When the further of two has ended, the attempt reads which others are left, while the nearer one holds the key. So none
// is left when that ends too, and the attempt is granted without a request: its own place is watched and has not ended.
// The places of this process are not watched, because the end of each is known. After a read every waiter of the line
// that holds by it is granted.
//
// A watch comes before the check that what it watches exists, so no end is missed. A watch that is interrupted begins
// again, with the check.
//
// Permits hold when their slots are recorded, by one conditional update of all holders that have none, in the order of
// the queue, by whichever process notices first. So a holder that does nothing delays no other.
//
// # Attempts
//
//	         granted  place ended    session ended  broken         context ends
//	waiting  holding  puts another   puts another   –              over
//	holding  –        lost           lost, OnLost   lost, OnLost   –
//	over     –        –              –              –              –
//
// An attempt is over when it was released, lost or given up. A request to put a place that had no answer may still be
// executed later. Its attempt ends by Remove with Late set, which makes the service refuse what arrives after it.
package places
