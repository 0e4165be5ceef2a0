package mysqllock

import (
	"fmt"
	"strings"
)

// The packets of this file are those of packet.go for locks that readers or permits hold or wait for
// (the column "shares" of the row of the lock is set), and also correct for all other locks. Each
// locks the row of the lock, changes the contenders by its operation, and then admits waiters. It
// reads nothing before it has the lock: its snapshot shows the queue as the transaction before has
// left it. Only renewals change rows without that lock, and of shared holders only: so a transaction
// reads from its snapshot which of them have expired, but deletes a row only if it finds it expired
// after it has locked it, and counts those that are left.
//
// It finds the rows to delete and to copy by primary key, from a list of places in JSON. A range
// would lock the row behind it, which can be that of another lock, and gaps in which others insert.

// lockShares locks the row of the lock and sets the variables. freed is the condition under which an
// exclusive holder does not hold the lock any more.
func lockShares(freed string) string {
	return fmt.Sprintf(`SELECT {now},IFNULL(MAX(last),0),IFNULL(MAX(last),0),IFNULL(MAX(IF(owner='' OR expires<={now}%[1]s,served+1,%[2]s)),%[2]s),
IFNULL(MAX(GREATEST(token+1,{now})),0),IFNULL(MAX(owner<>'' AND owner={me} AND expires>{now}),0),MAX(capacity),
MAX(IF(owner<>'' AND expires<={now} AND unclaimed>0,process,NULL)),MAX(IF(owner<>'',expires,NULL)),IFNULL(MAX(unclaimed>=%[3]d),0),FALSE,0,NULL,NULL,NULL,NULL,%[4]s
INTO @interlock_now,@interlock_last,@interlock_end,@interlock_from,@interlock_token,@interlock_me,@interlock_capacity,
@interlock_doomed,@interlock_ended,@interlock_ask,@interlock_here,@interlock_mine,@interlock_weight,@interlock_limit,@interlock_present,@interlock_presentof,%[5]s
FROM {table} WHERE {lock} FOR UPDATE`, freed, none, maxUnclaimed, noNext, intoNext)
}

const places = "JSON_TABLE(@interlock_places,'$[*]' COLUMNS (place BIGINT PATH '$')) j"

// endShares deletes the shared holders that have expired and that nobody renews.
var endShares = packet{
	`{wide} JSON_ARRAYAGG(place),GROUP_CONCAT(DISTINCT IF(unclaimed>0,process,NULL)),MAX(expires) INTO @interlock_places,@interlock_gone,@interlock_until
FROM {table} WHERE name={name} AND place>{shares} AND expires<=@interlock_now`,
	"DELETE l FROM " + places + " STRAIGHT_JOIN {table} l ON l.name={name} AND l.place=j.place WHERE l.expires<=@interlock_now",
}

// choose finds the waiters to admit: @interlock_grant is the place of one that gets the whole lock, or
// those of the shares are from @interlock_next to @interlock_upto. It first deletes the waiters of
// processes that did not claim their grants. Readers have no limit, so all up to the next exclusive
// request are admitted. Of permits it considers no more than admitAtOnce.
var choose = packet{
	`{wide} COUNT(*),IFNULL(SUM(weight),0),IFNULL(GROUP_CONCAT(slots SEPARATOR ''),'') INTO @interlock_holders,@interlock_held,@interlock_taken
FROM {table} WHERE name={name} AND place>{shares}`,
	fmt.Sprintf(`SET @interlock_doomed=NULLIF(CONCAT_WS(',',@interlock_doomed,@interlock_gone),''),@interlock_all=IFNULL(@interlock_holders=0 AND
GREATEST(IFNULL(@interlock_until,0),IFNULL(@interlock_ended,0)) BETWEEN 1 AND @interlock_now-%d-
(SELECT w.ttl FROM {table} w WHERE w.name={name} AND w.place>=@interlock_from AND w.place<{shares} ORDER BY w.place LIMIT 1),0),
@interlock_ask=IFNULL(@interlock_ask AND @interlock_mine>=@interlock_from,0)`, deadAfter.Microseconds()),
	"DELETE FROM {table} WHERE name={name} AND place>=@interlock_from AND place<=IF(@interlock_doomed IS NULL AND NOT @interlock_all,0,@interlock_last)" +
		" AND (@interlock_all OR FIND_IN_SET(process,@interlock_doomed))",
	`SELECT place,owner,process,metadata,ttl,weight,capacity INTO ` + intoNext + `,@interlock_weight,@interlock_limit FROM {table}
WHERE name={name} AND place>=IF(@interlock_ask,@interlock_mine,@interlock_from) AND place<{shares} ORDER BY place LIMIT 1`,
	fmt.Sprintf(`SELECT CASE WHEN @interlock_next IS NULL OR @interlock_weight=0 THEN NULL
WHEN @interlock_ask THEN IF(@interlock_limit=0 OR @interlock_held+@interlock_weight<=@interlock_limit,@interlock_next,NULL)
WHEN @interlock_limit=0 THEN IFNULL((SELECT q.place FROM {table} q WHERE q.name={name} AND q.place>@interlock_next AND q.place<{shares} AND q.weight=0 ORDER BY q.place LIMIT 1)-1,@interlock_end)
ELSE (SELECT MAX(r.place) FROM (SELECT q.place,SUM(q.weight) OVER (ORDER BY q.place) AS total,SUM(q.weight=0) OVER (ORDER BY q.place) AS writers FROM
(SELECT place,weight FROM {table} WHERE name={name} AND place>=@interlock_next AND place<{shares} ORDER BY place LIMIT %d) q) r
WHERE r.writers=0 AND r.total<=@interlock_limit-@interlock_held) END,IF(@interlock_weight=0 AND @interlock_holders=0,@interlock_next,NULL)
INTO @interlock_upto,@interlock_grant`, admitAtOnce),
	"{wide} COUNT(*),JSON_ARRAYAGG(place) INTO @interlock_count,@interlock_places FROM {table} WHERE name={name} AND place>=@interlock_next AND place<=@interlock_upto",
	`{wide} GROUP_CONCAT(CONCAT(',',LPAD(HEX(n-1),3,'0')) ORDER BY n SEPARATOR '') INTO @interlock_free
FROM JSON_TABLE(IF(@interlock_count>0 AND @interlock_limit>0,CONCAT('[0',REPEAT(',0',@interlock_limit-1),']'),NULL),'$[*]' COLUMNS (n FOR ORDINALITY)) j
WHERE LOCATE(CONCAT(',',LPAD(HEX(n-1),3,'0')),@interlock_taken)=0`,
}

const admitAtOnce = 64 // permits are granted to so many waiters by one packet; the client sends another if there are more

// moreFit says that choose did not consider further waiters, which may fit.
var moreFit = fmt.Sprintf("@interlock_count>=%d AND @interlock_limit>0", admitAtOnce)

// admit grants what choose has found. The grants are provisional, but for that of the attempt itself.
var admit = packet{
	fmt.Sprintf(`INSERT INTO {table} (name,place,owner,process,metadata,ttl,granted,expires,token,unclaimed,weight,capacity,slots)
SELECT {name},{shares}+@interlock_token+q.n,q.owner,q.process,q.metadata,q.ttl,@interlock_now,@interlock_now+IF(q.owner={me},q.ttl,LEAST(q.ttl,%d)),@interlock_token+q.n,
q.owner<>{me},q.weight,q.capacity,IF(q.capacity=0,'',SUBSTR(@interlock_free,1+%[2]d*(q.total-q.weight),%[2]d*q.weight)) FROM
(SELECT w.owner,w.process,w.metadata,w.ttl,w.weight,w.capacity,ROW_NUMBER() OVER (ORDER BY w.place)-1 AS n,SUM(w.weight) OVER (ORDER BY w.place) AS total
FROM `+places+` STRAIGHT_JOIN {table} w ON w.name={name} AND w.place=j.place) q`, provisionalTTL.Microseconds(), slotWidth),
	fmt.Sprintf(`UPDATE {table} SET token=CASE WHEN @interlock_grant IS NOT NULL THEN @interlock_token WHEN @interlock_count>0 THEN @interlock_token+@interlock_count-1 ELSE token END,
owner=IF(@interlock_grant IS NULL,'',@interlock_owner),process=IF(@interlock_grant IS NULL,'',@interlock_process),metadata=IF(@interlock_grant IS NULL,'',@interlock_metadata),
granted=IF({kept} AND @interlock_grant IS NULL AND @interlock_count=0,granted,@interlock_now),
expires=CASE WHEN @interlock_grant IS NOT NULL THEN @interlock_now+LEAST(@interlock_ttl,%d) WHEN @interlock_holders+@interlock_count>0 THEN {end} ELSE 0 END,
unclaimed=IF(@interlock_doomed IS NULL,0,unclaimed)+(@interlock_grant IS NOT NULL OR @interlock_doomed IS NOT NULL AND @interlock_count>0),
served=CASE WHEN @interlock_ask AND (@interlock_grant IS NOT NULL OR @interlock_count>0) THEN served
WHEN @interlock_grant IS NOT NULL THEN @interlock_grant WHEN @interlock_count>0 THEN @interlock_upto WHEN @interlock_next IS NULL THEN last ELSE served END,
shares=IF(@interlock_next IS NULL AND @interlock_holders=0,0,shares) WHERE {lock} AND @interlock_from<`, provisionalTTL.Microseconds()) + none,
	"DELETE FROM {table} WHERE name={name} AND place=@interlock_grant AND place>0",
	"DELETE l FROM " + places + " STRAIGHT_JOIN {table} l ON l.name={name} AND l.place=j.place",
}

// enterSharesPacket makes a request for a share. The attempt enters the queue, and is admitted if it
// fits. Else it leaves the queue, unless join is set. It is refused if it was abandoned, or if another
// capacity is in use.
func (b *Backend) enterSharesPacket(v values, join, scan, getName bool) packet {
	where := "place>{shares}"
	switch {
	case scan:
		where = "place>0"
	case v.place > 0:
		where = "(place={place} OR place>{shares})"
	}
	p := packet{
		"START TRANSACTION", ensure, lockShares(" OR FALSE"),
		"SELECT IFNULL(MAX(place),0),@interlock_me OR COUNT(*)>0 OR EXISTS(SELECT 1 FROM {table} t WHERE t.name={name} AND t.place={grave} AND t.owner={me} AND t.expires>{now})" +
			" INTO @interlock_mine,@interlock_skip FROM {table} WHERE name={name} AND " + where + " AND owner={me}",
		`INSERT INTO {table} (name,place,owner,process,metadata,ttl,granted,weight,capacity)
SELECT {name},@interlock_last+1,{me},{process},{metadata},{ttl},@interlock_now,{weight},{capacity} FROM DUAL WHERE NOT @interlock_skip`,
		"SET @interlock_here=@interlock_mine>0,@interlock_mine=IF(@interlock_skip,@interlock_mine,@interlock_last+1),@interlock_ask=FALSE",
	}
	p = append(p, endShares...)
	p = append(p,
		"SELECT weight,capacity INTO @interlock_present,@interlock_presentof FROM {table} WHERE name={name} AND place>IF(@interlock_skip OR @interlock_capacity={capacity},"+none+",0)"+
			" AND weight>0 AND capacity<>{capacity} ORDER BY place LIMIT 1",
		"SET @interlock_skip=@interlock_skip OR @interlock_present IS NOT NULL,@interlock_end=IF(@interlock_skip OR @interlock_present IS NOT NULL,@interlock_last,@interlock_last+1)",
		"DELETE FROM {table} WHERE name={name} AND place=IF(@interlock_present IS NULL,NULL,@interlock_mine)",
	)
	p = append(p, choose...)
	p = append(p,
		fmt.Sprintf("SET @interlock_do=NOT @interlock_skip AND (%t OR IFNULL(@interlock_mine<=@interlock_upto,FALSE))", join),
		"UPDATE {table} SET last=@interlock_mine,shares=1,capacity={capacity} WHERE {lock} AND @interlock_do",
	)
	p = append(p, admit...)
	p = append(p,
		"DELETE FROM {table} WHERE name={name} AND place=IF(@interlock_skip OR @interlock_do,NULL,@interlock_mine)",
		"COMMIT",
		b.readShares(v, readAfter{packet: true, place: "@interlock_mine", here: "@interlock_here OR @interlock_do", getName: getName}),
	)
	return b.packet(v, p)
}

// leaveSharesPacket is leavePacket for such locks.
func (b *Backend) leaveSharesPacket(v values, bury bool) packet {
	p := packet{"START TRANSACTION"}
	where := "(place={place} OR place>{shares})"
	switch {
	case bury:
		p, where = append(p, ensure), "place>0"
	case v.share > 0:
		where = "place={share}"
	}
	p = append(p, lockShares(" OR owner={me}"),
		"SELECT MAX(place),IFNULL(MAX(place>{shares} AND expires>@interlock_now),0) INTO @interlock_mine,@interlock_do FROM {table} WHERE name={name} AND owner={me} AND place>0 AND "+where,
		"DELETE FROM {table} WHERE name={name} AND place=@interlock_mine AND owner={me}",
		"SET @interlock_ask=FALSE",
	)
	if bury {
		p = append(p, tombstone...)
	}
	p = append(p, endShares...)
	p = append(p, choose...)
	p = append(p, admit...)
	p = append(p, "COMMIT",
		"SELECT TRUE,@interlock_me OR @interlock_do,@interlock_grant IS NOT NULL OR @interlock_count>0,"+moreFit+","+b.releaseName(v))
	for i := range p {
		p[i] = strings.Replace(p[i], "{kept}", "FALSE", 1)
	}
	return b.packet(v, p)
}

// passSharesPacket is passPacket for such locks: it ends the holders that have expired, and admits
// waiters.
func (b *Backend) passSharesPacket(v values) packet {
	p := packet{
		"START TRANSACTION", lockShares(""),
		"SELECT IFNULL(MAX(place),0) INTO @interlock_mine FROM {table} WHERE name={name} AND place={place} AND place>0 AND owner={me}",
	}
	p = append(p, endShares...)
	p = append(p, choose...)
	p = append(p, admit...)
	p = append(p, "COMMIT", b.readShares(v, readAfter{packet: true, place: "{place}"}))
	return b.packet(v, p)
}

// downgradePacket makes an exclusive holder a reader, and admits the readers behind it. Its result is
// whether the attempt holds the lock as a reader, and the capacity of the permits that are waited for.
func (b *Backend) downgradePacket(v values) packet {
	p := packet{
		"START TRANSACTION", lockShares(" OR owner={me}"),
		"SELECT weight,capacity INTO @interlock_present,@interlock_presentof FROM {table} WHERE name={name} AND place>=@interlock_from AND place<{shares} AND capacity>0 ORDER BY place LIMIT 1",
		"SET @interlock_do=@interlock_me AND @interlock_present IS NULL,@interlock_ask=FALSE,@interlock_from=IF(@interlock_me AND @interlock_present IS NULL,@interlock_from," + none + ")",
		`INSERT INTO {table} (name,place,owner,process,metadata,ttl,granted,expires,token,weight)
SELECT name,{shares}+token,owner,process,metadata,{ttl},granted,expires,token,1 FROM {table} WHERE {lock} AND @interlock_do`,
		"UPDATE {table} SET shares=1,capacity=0 WHERE {lock} AND @interlock_do",
	}
	p = append(p, endShares...)
	p = append(p, choose...)
	p = append(p, admit...)
	p = append(p, "COMMIT",
		"SELECT EXISTS(SELECT 1 FROM {table} h WHERE h.name={name} AND h.place={share} AND h.owner={me} AND h.expires>{now}),IFNULL(@interlock_present,0),IFNULL(@interlock_presentof,0),@interlock_count>0")
	return b.packet(v, p)
}
