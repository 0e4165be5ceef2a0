package mysqllock

import (
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// The packets of this file are those of packet.go for locks that readers or permits hold or wait for
// (the column "shares" of the row of the lock is set), and also correct for all other locks. Each
// locks the row of the lock first. At READ COMMITTED its other reads see the queue as the transaction
// before has left it, and it locks no gaps. Without that lock renewals change
// rows of shared holders: so a transaction deletes such a row only if it finds it expired after it has
// locked it, and then goes by the rows that are left. Deadlines of waiters are changed without it, too
// (deadline.go).
//
// Invariant after each transaction: the first waiter does not fit beside the holders that have a row.
// So a request needs to consider itself only, and the packet that removes a holder or a waiter admits those who
// fit then.

// begin begins a transaction that locks no gaps.
func begin(statements ...string) packet {
	return append(packet{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"}, statements...)
}

// taken are the permits that are held, as a string of a 0 or a 1 for each. The position of the n-th 0
// is that of the n-th free permit.
const (
	zeros  = "(LENGTH(%[1]s)-LENGTH(REPLACE(%[1]s,'0','')))"
	upToNo = "LENGTH(SUBSTRING_INDEX(%[1]s,'0',%[2]s))+1" // the length of the part with so many zeros
)

// taking returns an expression for the slots of a holder that takes the permits from the one after
// before to the one of upTo, of the free ones in bits.
func taking(bits, before, upTo string) string {
	start := fmt.Sprintf("IF(%s=0,0,%s)", before, fmt.Sprintf(upToNo, bits, before))
	part := fmt.Sprintf("SUBSTR(%s,1+%s,%s-%s)", bits, start, fmt.Sprintf(upToNo, bits, upTo), start)
	return fmt.Sprintf("CONCAT(REPEAT('0',%s),REPLACE(REPLACE(REPLACE(%s,'1','x'),'0','1'),'x','0'))", start, part)
}

// taken returns an expression for bits after the first n free permits were taken.
func taken(bits, n string) string {
	length := fmt.Sprintf(upToNo, bits, n)
	return fmt.Sprintf("CONCAT(REPEAT('1',%[2]s),SUBSTR(%[1]s,1+%[2]s))", bits, length)
}

// enterSharesPacket makes a request for a share. It is granted if nothing waits and it fits. Else, if
// join is set, the attempt enters the queue. It is refused if it was abandoned, or if another capacity
// is in use.
func (b *Backend) enterSharesPacket(v values, join, scan, getName bool) packet {
	where := "place>{shares}"
	switch {
	case scan:
		where = "place>(SELECT l.served FROM {table} l WHERE l.name={name} AND l.place=0)"
	case v.place > 0:
		where = "(place={place} OR place>{shares})"
	}
	fits, bits, slots, after := "TRUE", "''", "''", "''"
	if v.req.Share.Capacity > 0 {
		fits = fmt.Sprintf(zeros, "slots") + ">={weight}"
		bits = "IF(expires={end},slots,REPEAT('0',{capacity}))"
		slots, after = taking("@interlock_bits", "0", "{weight}"), taken("@interlock_bits", "{weight}")
	}
	p := begin(ensure,
		"SELECT IFNULL(MAX(place),0) INTO @interlock_mine FROM {table} WHERE name={name} AND "+where+" AND owner={me}",
		fmt.Sprintf(`SELECT {now},last+1,GREATEST(token+1,{now}),%[1]s,NULL,
IF(@interlock_mine=0 AND shares AND capacity<>{capacity},(SELECT CONCAT(c.weight,' ',c.capacity) FROM {table} c WHERE c.name={name} AND c.place>0 AND c.weight>0 ORDER BY c.place LIMIT 1),NULL),
CASE WHEN @interlock_mine>0 OR owner={me} AND expires>{now} OR %[2]s THEN 0 WHEN served=last AND (expires<={now} OR expires={end} AND %[3]s) THEN %[4]d WHEN %[5]t THEN %[6]d ELSE 0 END
INTO @interlock_now,@interlock_next,@interlock_token,@interlock_bits,@interlock_doomed,@interlock_present,@interlock_do FROM {table} l WHERE {lock}`, bits, refused, fits, doGrant, join, doEnter),
		"SET @interlock_do=IF(@interlock_present IS NULL,@interlock_do,0),@interlock_count=0,@interlock_limit=0,@interlock_ask=FALSE,@interlock_overdue=NULL",
		fmt.Sprintf(`INSERT INTO {table} (name,place,owner,process,metadata,ttl,granted,weight,capacity,expires,token,slots)
SELECT {name},IF(%[1]s,{shares}+@interlock_token,@interlock_next),{me},{process},{metadata},{ttl},@interlock_now,{weight},{capacity},
IF(%[1]s,@interlock_now+{ttl},0),IF(%[1]s,@interlock_token,0),IF(%[1]s,%[2]s,'') FROM DUAL WHERE @interlock_do>0`, granting, slots),
		fmt.Sprintf(`UPDATE {table} SET token=IF(%[1]s,@interlock_token,token),owner=IF(%[1]s,'',owner),process=IF(%[1]s,'',process),metadata=IF(%[1]s,'',metadata),
granted=IF(%[1]s,@interlock_now,granted),expires=IF(%[1]s,{end},expires),unclaimed=IF(%[1]s,0,unclaimed),slots=IF(%[1]s,%[2]s,slots),
last=last+IF(%[1]s,0,1),shares=1,capacity={capacity} WHERE {lock} AND @interlock_do>0`, granting, after),
		commit,
		b.readShares(v, readAfter{packet: true, place: fmt.Sprintf("IF(@interlock_do=%d,@interlock_next,@interlock_mine)", doEnter), here: "@interlock_do>0 OR @interlock_mine>0", getName: getName}),
	)
	return b.packet(v, p)
}

var granting = fmt.Sprintf("@interlock_do=%d", doGrant)

// lockShares locks the row of the lock and sets the variables. freed is the condition under which an
// exclusive holder does not hold the lock any more.
func lockShares(freed string) string {
	return fmt.Sprintf(`SELECT {now},IFNULL(MAX(last),0),IFNULL(MAX(IF(owner='' OR expires<={now}%[1]s,served+1,%[2]s)),%[2]s),
IFNULL(MAX(GREATEST(token+1,{now})),0),IFNULL(MAX(owner<>'' AND owner={me} AND expires>{now}),0),IFNULL(MAX(IF(shares,capacity,0)),0),IFNULL(MAX(IF(expires={end},slots,'')),''),
MAX(IF(owner<>'' AND expires<={now} AND unclaimed>0,process,NULL)),MAX(IF(owner<>'',expires,NULL)),IFNULL(MAX(unclaimed>=%[3]d),0),0,NULL,NULL,NULL,NULL,NULL,%[4]s
INTO @interlock_now,@interlock_last,@interlock_from,@interlock_token,@interlock_me,@interlock_capacity,@interlock_bits,
@interlock_doomed,@interlock_ended,@interlock_ask,@interlock_mine,@interlock_weight,@interlock_limit,@interlock_present,@interlock_gone,@interlock_overdue,%[5]s
FROM {table} WHERE {lock} FOR UPDATE`, freed, none, maxUnclaimed, noNext, intoNext)
}

// lockShare locks the row of a shared holder that leaves, before that of the lock: a transaction with Guard may have
// locked it, and the others must not wait meanwhile. No transaction waits for such a row while it has that of the lock:
// what reads them is SELECT … INTO, since SET locks what a subquery reads.
const lockShare = "SELECT COUNT(*) INTO @interlock_do FROM {table} WHERE name={name} AND place={share} AND place>0 FOR UPDATE"

// endShares deletes the shared holders that have expired and that no renewal keeps. It does not wait for a row that a
// transaction with Guard has locked: that holder stays until the transaction ends. It also deletes the waiters of
// processes that did not claim their grants. It finds out which permits are still held.
var endShares = packet{
	`{wide} MIN(place),MAX(place),GROUP_CONCAT(DISTINCT IF(unclaimed>0,process,NULL)),MAX(expires) INTO @interlock_first,@interlock_end,@interlock_gone,@interlock_until
FROM {table} WHERE name={name} AND place>{shares} AND expires<=@interlock_now`,
	fmt.Sprintf(`DELETE h FROM (SELECT place AS gone FROM {table} WHERE name={name} AND place>=@interlock_first AND place<=@interlock_end AND expires<=@interlock_now
LIMIT %d FOR UPDATE SKIP LOCKED) d STRAIGHT_JOIN {table} h ON h.name={name} AND h.place=gone`, leastSelectLimit),
	`{wide} GROUP_CONCAT(q.bit ORDER BY q.n SEPARATOR '') INTO @interlock_bits FROM (SELECT j.n,IFNULL(MAX(SUBSTR(h.slots,j.n,1)='1'),0) AS bit
FROM JSON_TABLE(IF(@interlock_capacity>0,CONCAT('[0',REPEAT(',0',@interlock_capacity-1),']'),NULL),'$[*]' COLUMNS (n FOR ORDINALITY)) j
LEFT JOIN {table} h ON h.name={name} AND h.place>{shares} GROUP BY j.n) q`,
	fmt.Sprintf(`SELECT IFNULL(@interlock_bits,''),NULLIF(CONCAT_WS(',',@interlock_doomed,@interlock_gone),''),IFNULL(NOT EXISTS(SELECT 1 FROM {table} h WHERE h.name={name} AND h.place>{shares}) AND
GREATEST(IFNULL(@interlock_until,0),IFNULL(@interlock_ended,0)) BETWEEN 1 AND @interlock_now-%d-
(SELECT w.ttl FROM {table} w WHERE w.name={name} AND w.place>=@interlock_from AND w.place<{shares} ORDER BY w.place LIMIT 1),0)
INTO @interlock_bits,@interlock_doomed,@interlock_all`, deadAfter.Microseconds()),
	"DELETE FROM {table} WHERE name={name} AND place>=@interlock_from AND place<=IF(COALESCE(@interlock_doomed,@interlock_overdue) IS NULL AND NOT @interlock_all,0,@interlock_last)" +
		" AND (@interlock_all OR FIND_IN_SET(process,CONCAT_WS(',',@interlock_doomed,@interlock_overdue)))",
}

// admit grants the lock to the waiters that fit. They are those from @interlock_next to @interlock_upto,
// or the one at @interlock_grant, which gets the whole lock. Readers have no limit, so all up to the
// next exclusive request are admitted. Of the waiters for permits it considers no more than
// admitAtOnce. The grants are provisional.
var admit = packet{
	`SELECT place,owner,process,metadata,ttl,weight,capacity INTO ` + intoNext + `,@interlock_weight,@interlock_limit FROM {table}
WHERE name={name} AND place>=@interlock_from AND place<{shares} ORDER BY place LIMIT 1`,
	`SELECT e.x,IF(@interlock_limit>0 AND (NOT e.x OR @interlock_bits=''),REPEAT('0',@interlock_limit),@interlock_bits) INTO @interlock_holders,@interlock_bits
FROM (SELECT EXISTS(SELECT 1 FROM {table} h WHERE h.name={name} AND h.place>{shares}) AS x) e`,
	fmt.Sprintf(`SELECT CASE WHEN @interlock_next IS NULL OR @interlock_weight=0 THEN NULL
WHEN @interlock_ask THEN IF(@interlock_limit=0 OR @interlock_weight<=%[1]s,@interlock_next,NULL)
WHEN @interlock_limit=0 THEN IFNULL((SELECT q.place FROM {table} q WHERE q.name={name} AND q.place>@interlock_next AND q.place<{shares} AND q.weight=0 ORDER BY q.place LIMIT 1)-1,@interlock_last)
WHEN @interlock_weight>%[1]s THEN NULL
ELSE (SELECT MAX(r.place) FROM (SELECT q.place,SUM(q.weight) OVER (ORDER BY q.place) AS total,SUM(q.weight=0) OVER (ORDER BY q.place) AS writers FROM
(SELECT place,weight FROM {table} WHERE name={name} AND place>=@interlock_next AND place<{shares} ORDER BY place LIMIT %[2]d) q) r
WHERE r.writers=0 AND r.total<=%[1]s) END,IF(@interlock_weight=0 AND NOT @interlock_holders,@interlock_next,NULL)
INTO @interlock_upto,@interlock_grant`, fmt.Sprintf(zeros, "@interlock_bits"), admitAtOnce),
	"SELECT COUNT(*),IFNULL(SUM(weight),0) INTO @interlock_count,@interlock_sum FROM {table} WHERE name={name} AND place>=@interlock_next AND place<=@interlock_upto",
	fmt.Sprintf(`INSERT INTO {table} (name,place,owner,process,metadata,ttl,granted,expires,token,unclaimed,weight,capacity,slots)
SELECT {name},{shares}+@interlock_token+q.n,q.owner,q.process,q.metadata,q.ttl,@interlock_now,@interlock_now+LEAST(q.ttl,%d),@interlock_token+q.n,1,q.weight,q.capacity,
IF(q.capacity=0,'',%s) FROM (SELECT w.*,ROW_NUMBER() OVER (ORDER BY w.place)-1 AS n,SUM(w.weight) OVER (ORDER BY w.place) AS total
FROM {table} w WHERE w.name={name} AND w.place>=@interlock_next AND w.place<=@interlock_upto) q`, provisionalTTL.Microseconds(), taking("@interlock_bits", "(q.total-q.weight)", "q.total")),
	fmt.Sprintf(`UPDATE {table} SET token=CASE WHEN @interlock_grant IS NOT NULL THEN @interlock_token WHEN @interlock_count>0 THEN @interlock_token+@interlock_count-1 ELSE token END,
owner=IF(@interlock_grant IS NULL,'',@interlock_owner),process=IF(@interlock_grant IS NULL,'',@interlock_process),metadata=IF(@interlock_grant IS NULL,'',@interlock_metadata),
granted=IF({kept} AND @interlock_grant IS NULL AND @interlock_count=0,granted,@interlock_now),
expires=CASE WHEN @interlock_grant IS NOT NULL THEN @interlock_now+LEAST(@interlock_ttl,%d) WHEN @interlock_holders OR @interlock_count>0 THEN {end} ELSE 0 END,
unclaimed=IF(@interlock_doomed IS NULL,0,unclaimed)+(@interlock_grant IS NOT NULL OR @interlock_doomed IS NOT NULL AND @interlock_count>0),
served=CASE WHEN @interlock_ask AND (@interlock_grant IS NOT NULL OR @interlock_count>0) THEN served
WHEN @interlock_grant IS NOT NULL THEN @interlock_grant WHEN @interlock_count>0 THEN @interlock_upto WHEN @interlock_next IS NULL THEN last ELSE served END,
shares=IF(@interlock_next IS NULL AND NOT @interlock_holders,0,shares),slots=IF(@interlock_count>0 AND @interlock_limit>0,%s,@interlock_bits) WHERE {lock} AND @interlock_from<%s`,
		provisionalTTL.Microseconds(), taken("@interlock_bits", "@interlock_sum"), none),
	"DELETE FROM {table} WHERE name={name} AND place>=@interlock_next AND place<=IFNULL(@interlock_grant,@interlock_upto)",
	commit,
}

const admitAtOnce = 64 // if there are more who may fit, the client sends another packet

// moreFit says that admit did not consider all waiters that may fit.
var moreFit = fmt.Sprintf("(@interlock_limit>0 AND @interlock_count>=%d OR @interlock_ask AND @interlock_count>0)", admitAtOnce)

// leaveSharesPacket is leavePacket for such locks. If it is to bury the attempt, or to find its row, it
// also ends the holders that have expired: it has to find out which permits are held.
func (b *Backend) leaveSharesPacket(v values, bury bool) packet {
	p, held := begin(), "@interlock_me OR @interlock_do"
	switch lock := lockShares(" OR owner={me}"); {
	case v.hold && !bury:
		p = append(p, lockShare, lock,
			"DELETE FROM {table} WHERE name={name} AND place={share} AND place>0 AND owner={me} AND expires>@interlock_now",
			"SET @interlock_do=ROW_COUNT(),@interlock_ask=FALSE",
		)
		if len(v.slots) > 0 {
			p = append(p, "SET @interlock_bits=IF(@interlock_do,"+freeing(v.slots)+",@interlock_bits)")
		}
	default:
		where := "(place={place} OR place>{shares})"
		if bury {
			p, where = append(p, ensure), "place>0"
		}
		p = append(p, lock,
			"SELECT MAX(place),IFNULL(MAX(place>{shares} AND expires>@interlock_now),0) INTO @interlock_mine,@interlock_do FROM {table} WHERE name={name} AND owner={me} AND place>0 AND "+where,
			"DELETE FROM {table} WHERE name={name} AND place=@interlock_mine AND owner={me}",
			"SET @interlock_ask=FALSE",
		)
		if bury {
			p = append(p, tombstone...)
		}
		p = append(p, endShares...)
	}
	p = append(p, admitTo(false)...)
	p = append(p, "SELECT TRUE,"+held+",@interlock_grant IS NOT NULL OR @interlock_count>0,TRUE,"+moreFit+","+b.releaseName(v))
	return b.packet(v, p)
}

// releaseSharePacket ends a shared grant if nothing waits. Else it changes nothing, and
// leaveSharesPacket has to follow.
func (b *Backend) releaseSharePacket(v values) packet {
	p := begin(lockShare,
		"SELECT {now},IFNULL(MAX(IF(expires={end},slots,'')),''),IFNULL(MAX(served=last),TRUE) INTO @interlock_now,@interlock_bits,@interlock_do FROM {table} WHERE {lock} FOR UPDATE",
		"DELETE FROM {table} WHERE name={name} AND place=IF(@interlock_do,{share},NULL) AND owner={me} AND expires>@interlock_now",
		"SELECT ROW_COUNT()>0,EXISTS(SELECT 1 FROM {table} h WHERE h.name={name} AND h.place>{shares}) INTO @interlock_me,@interlock_holders",
		"UPDATE {table} SET granted=@interlock_now,expires=IF(@interlock_holders,{end},0),shares=@interlock_holders,slots="+freeing(v.slots)+" WHERE {lock} AND @interlock_me",
		commit,
		"SELECT @interlock_do,@interlock_me,FALSE,TRUE,FALSE,IF(@interlock_do,"+b.releaseName(v)+",0)")
	return b.packet(v, p)
}

// freeing returns an expression for the permits that are held without some.
func freeing(slots []int) string {
	bits := "@interlock_bits"
	for i := 0; i < len(slots); {
		n := 1
		for i+n < len(slots) && slots[i+n] == slots[i]+n {
			n++
		}
		bits = fmt.Sprintf("INSERT(%s,%d,%d,REPEAT('0',%d))", bits, slots[i]+1, n, n)
		i += n
	}
	return bits
}

// admitTo returns admit. kept says that a lock that stays as it is keeps the time of its last use.
func admitTo(kept bool) packet {
	p := make(packet, len(admit))
	for i := range p {
		p[i] = strings.Replace(admit[i], "{kept}", fmt.Sprint(kept), 1)
	}
	return p
}

// passSharesPacket is passPacket for such locks: it ends the holders that have expired, removes the waiters of a
// process that missed its deadline, and admits waiters. After several grants in a row that were not claimed the
// attempt, which is alive, is first.
func (b *Backend) passSharesPacket(v values) packet {
	p := begin(lockShares(""),
		"SELECT "+known+","+overdueProcess+" INTO @interlock_mine,@interlock_overdue")
	p = append(p, endShares...)
	p = append(p, "SET @interlock_ask=@interlock_ask AND @interlock_from<"+none+" AND @interlock_mine>=@interlock_from,"+
		"@interlock_from=IF(@interlock_ask AND @interlock_from<"+none+" AND @interlock_mine>=@interlock_from,@interlock_mine,@interlock_from)")
	p = append(p, admitTo(true)...)
	p = append(p, b.readShares(v, readAfter{packet: true, place: "{place}"}))
	return b.packet(v, p)
}

// downgradePacket makes an exclusive holder a reader, and admits the readers behind it. Its result is
// whether the attempt holds the lock as a reader, a share of permits that is waited for, whether
// readers were admitted, and whether attempts wait.
func (b *Backend) downgradePacket(v values) packet {
	p := begin(lockShares(" OR owner={me}"),
		"SELECT CONCAT(weight,' ',capacity) INTO @interlock_present FROM {table} WHERE name={name} AND place>=@interlock_from AND place<{shares} AND capacity>0 ORDER BY place LIMIT 1",
		"SET @interlock_do=@interlock_me AND @interlock_present IS NULL,@interlock_ask=FALSE,@interlock_from=IF(@interlock_me AND @interlock_present IS NULL,@interlock_from,"+none+")",
		`INSERT INTO {table} (name,place,owner,process,metadata,ttl,granted,expires,token,weight)
SELECT name,{shares}+token,owner,process,metadata,{ttl},granted,expires,token,1 FROM {table} WHERE {lock} AND @interlock_do`,
		"UPDATE {table} SET shares=1,capacity=0 WHERE {lock} AND @interlock_do",
	)
	p = append(p, admitTo(false)...)
	p = append(p, "SELECT EXISTS(SELECT 1 FROM {table} h WHERE h.name={name} AND h.place={share} AND h.owner={me} AND h.expires>{now}),IFNULL(@interlock_present,''),@interlock_count>0,@interlock_next IS NOT NULL")
	return b.packet(v, p)
}

// parsePresent reads @interlock_present.
func parsePresent(s string) (share backend.Share) {
	_, _ = fmt.Sscan(s, &share.Weight, &share.Capacity) // empty: none
	return share
}
