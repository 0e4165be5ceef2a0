package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// packet are statements that are sent together. The last one is a SELECT.
//
// The packets of this file are a transaction and a read of its outcome. The transaction locks
// the row of the lock first and changes the queue only then, so that transactions of one lock
// follow each other, and its other reads see the queue as it is. For that the subqueries of the
// statement that locks depend on the row: the server executes them, and makes the snapshot of the
// transaction, after it has the lock. That statement is an aggregate, so it sets the variables also
// if there is no row. A packet inserts before it deletes: a DELETE that finds nothing locks a gap.
type packet []string

// These do not depend on completion_type.
const (
	commit   = "COMMIT AND NO CHAIN NO RELEASE"
	rollBack = "ROLLBACK AND NO CHAIN NO RELEASE"
)

// ensure inserts the row of the lock if it is missing. Places begin with the server's clock: if the row was deleted and
// those of waiters were not, the new places are above theirs, and those waiters enter the queue again.
const ensure = "INSERT INTO {table} (name,place,token,served,last) VALUES ({name},0," + firstToken + ",{now},{now}) ON DUPLICATE KEY UPDATE place=0"

const (
	refused = "EXISTS(SELECT 1 FROM {table} t WHERE t.name=l.name AND t.place={grave} AND t.owner={me} AND t.expires>{now})"
	// present is the place of an attempt if it is still in the queue there, or 0.
	present = "IFNULL((SELECT p.place FROM {table} p WHERE p.name=l.name AND p.place={place} AND p.owner={me}" + unserved + "),0)"
	// unserved is false for the row of a waiter that is older than the row of the lock.
	unserved = " AND p.place>l.served"
	// known is present in a statement that does not read the row of the lock, for a range above the served places.
	known = "IFNULL((SELECT p.place FROM {table} p WHERE p.name={name} AND p.place={place} AND p.owner={me}),0)"
	// anywhere is its place wherever it is. It reads the whole queue.
	anywhere = "IFNULL((SELECT p.place FROM {table} p WHERE p.name=l.name AND p.place>l.served AND p.owner={me} LIMIT 1),0)"
)

// nextWaiter reads the first waiter, if there is one, from the place @interlock_from. A range must
// not depend on another row: the server would read the whole queue.
const nextWaiter = "SELECT place,owner,process,metadata,ttl INTO " + intoNext + " FROM {table} WHERE name={name} AND place>=@interlock_from%s ORDER BY place LIMIT 1"

const (
	noNext   = "NULL,NULL,NULL,NULL,NULL"
	intoNext = "@interlock_next,@interlock_owner,@interlock_process,@interlock_metadata,@interlock_ttl"
)

// grantNext grants the key to that waiter, or frees it if there is none.
var grantNext = fmt.Sprintf(`UPDATE {table} SET token=IF(@interlock_next IS NULL,token,GREATEST(token+1,@interlock_now)),owner=IFNULL(@interlock_owner,''),
process=IFNULL(@interlock_process,''),metadata=IFNULL(@interlock_metadata,''),granted={granted},
expires=IF(@interlock_next IS NULL,0,@interlock_now+LEAST(@interlock_ttl,%d)),`, provisionalTTL.Microseconds())

const whereLock = " WHERE l.name={name} AND l.place=0"

// enterPacket grants the key to the attempt if that is free. If not, and join is set, the attempt
// enters the queue, unless it is there already; scan says that its place may not be the known one.
// Without a row it changes nothing.
func (b *Backend) enterPacket(v values, join, scan, getName bool) packet {
	mine := present
	if scan {
		mine = anywhere
	}
	at := fmt.Sprintf("IF(@interlock_do=%d,@interlock_next,@interlock_mine)", doEnter)
	return b.packet(v, packet{
		"START TRANSACTION",
		fmt.Sprintf(`SELECT {now},MAX(last)+1,IFNULL(MAX(%[1]s),0),IFNULL(MAX(CASE WHEN %[2]s THEN 0 WHEN owner={me} AND expires>{now} THEN 0
WHEN expires<={now} AND served=last THEN %[3]d WHEN %[4]t AND %[1]s=0 THEN %[5]d ELSE 0 END),0)
INTO @interlock_now,@interlock_next,@interlock_mine,@interlock_do FROM {table} l`+whereLock+" FOR UPDATE", mine, refused, doGrant, join, doEnter),
		strings.ReplaceAll(fmt.Sprintf(`UPDATE {table} SET token=IF({grant},GREATEST(token+1,@interlock_now),token),owner=IF({grant},{me},owner),
process=IF({grant},{process},process),metadata=IF({grant},{metadata},metadata),granted=IF({grant},@interlock_now,granted),
expires=IF({grant},@interlock_now+{ttl},expires),unclaimed=IF({grant},0,unclaimed),last=last+(@interlock_do=%d) WHERE {lock} AND @interlock_do>0`, doEnter), "{grant}", fmt.Sprintf("@interlock_do=%d", doGrant)),
		fmt.Sprintf("INSERT INTO {table} (name,place,owner,process,metadata,ttl,granted) SELECT {name},@interlock_next,{me},{process},{metadata},{ttl},@interlock_now FROM DUAL WHERE @interlock_do=%d", doEnter),
		commit,
		b.read(v, at, at, getName),
	})
}

// What a transaction decided.
const (
	doGrant = 1 // grant the key to the attempt
	doEnter = 2 // the attempt enters the queue
)

// tombstone refuses later requests of the attempt.
var tombstone = strings.Split(strings.ReplaceAll(`UPDATE {table} SET tombstones=GREATEST(tombstones,{until}) WHERE {lock};
INSERT INTO {table} (name,place,owner,expires) VALUES ({name},{grave},{me},{until}) ON DUPLICATE KEY UPDATE owner={me},expires={until}`,
	"{until}", fmt.Sprintf("@interlock_now+%d", tombstoneFor.Microseconds())), ";\n")

// leavePacket removes the attempt from the queue. If it holds the key, the packet grants that to the
// first waiter, or frees it. With bury it writes a tombstone, which refuses later requests of the
// attempt, and looks for the attempt in the whole queue. The last statement returns whether that was
// done, whether the attempt held the key, and whether a waiter has it now. If shares may hold the key or
// wait for it, only leaveSharesPacket removes the attempt.
func (b *Backend) leavePacket(v values, bury bool) packet {
	mine := strings.Replace(present, unserved, "", 1)
	if bury {
		mine = anywhere
	}
	p := packet{"START TRANSACTION"}
	if bury {
		p = append(p, ensure)
	}
	p = append(p,
		fmt.Sprintf("SELECT {now},IFNULL(MAX(IF(owner={me} AND expires>{now} AND shares=0,served+1,%[1]s)),%[1]s),IFNULL(MAX(IF(shares=0,%[2]s,0)),0),IFNULL(MAX(shares),0),"+noNext+
			" INTO @interlock_now,@interlock_from,@interlock_mine,@interlock_shares,"+intoNext+" FROM {table} l"+whereLock+" FOR UPDATE", none, mine),
		fmt.Sprintf(nextWaiter, " AND owner<>{me}"),
		strings.Replace(grantNext, "{granted}", "@interlock_now", 1)+"served=IFNULL(@interlock_next,last),unclaimed=(@interlock_next IS NOT NULL) WHERE {lock} AND @interlock_from<"+none)
	if bury {
		p = append(p, tombstone...)
	}
	// If neither is in the queue, the places are that of the lock's row, which is locked. If no place in the list is
	// possible, MariaDB takes a range of the whole queue, and locks the row of another lock behind it.
	p = append(p, "DELETE FROM {table} WHERE name={name} AND place IN (CAST(IFNULL(@interlock_next,0) AS SIGNED),CAST(@interlock_mine AS SIGNED)) AND place+0>0",
		commit,
		"SELECT @interlock_shares=0,@interlock_from<"+none+",@interlock_next IS NOT NULL,FALSE,FALSE,IF(@interlock_shares=0,"+b.releaseName(v)+",0)")
	return b.packet(v, p)
}

// releasePacket frees the key if the attempt holds it and no attempt waits. Its result is as that of
// leavePacket, which has to follow if it changed nothing.
func (b *Backend) releasePacket(v values) packet {
	return packet{
		b.updateHeld(v.req, "0", "owner='',process='',metadata='',granted={now},unclaimed=0,expires=0", " AND served=last"),
		b.sql("SELECT ROW_COUNT()>0,ROW_COUNT()>0,FALSE,IF(ROW_COUNT()>0,FALSE,EXISTS(SELECT 1 FROM {table} WHERE {lock} AND shares)),FALSE,IF(ROW_COUNT()>0,"+b.releaseName(v)+",0)", v),
	}
}

// passPacket grants the key to the first waiter, or frees it, if the lease has expired. The waiters
// of a process that did not claim its grant are removed. After several such grants the attempt,
// which is alive, is served first. The last statement returns the row of the lock, for the attempt,
// and that process.
func (b *Backend) passPacket(v values) packet {
	return b.packet(v, packet{
		"START TRANSACTION",
		fmt.Sprintf(`SELECT {now},IFNULL(MAX(IF(expires<={now} AND served<last AND shares=0,served+1,%[1]s)),%[1]s),IFNULL(MAX(IF(unclaimed>0,process,'')),''),MAX(unclaimed>=%[2]d),
IFNULL(MAX(last),0),IFNULL(MAX(expires<{now}-%[3]d-IFNULL((SELECT w.ttl FROM {table} w WHERE w.name=l.name AND w.place>0 ORDER BY w.place LIMIT 1),0)),0),%[4]s
INTO @interlock_now,@interlock_from,@interlock_doomed,@interlock_ask,@interlock_last,@interlock_all,%[5]s
FROM {table} l`+whereLock+" FOR UPDATE", none, maxUnclaimed, deadAfter.Microseconds(), noNext, intoNext),
		"DELETE FROM {table} WHERE name={name} AND place>=@interlock_from AND place<=IF(@interlock_doomed='' AND NOT @interlock_all,0,@interlock_last)" +
			" AND (process=@interlock_doomed OR @interlock_all)",
		fmt.Sprintf(nextWaiter, " AND place>=IF(@interlock_ask,"+known+",0)"),
		strings.Replace(grantNext, "{granted}", "IF(@interlock_next IS NULL,granted,@interlock_now)", 1) + `unclaimed=IF(@interlock_next IS NULL,0,unclaimed+1),
served=CASE WHEN @interlock_next IS NULL THEN last WHEN @interlock_ask AND @interlock_next={place} THEN served ELSE @interlock_next END WHERE {lock} AND @interlock_from<` + none,
		"DELETE FROM {table} WHERE name={name} AND place=@interlock_next AND place>0",
		commit,
		strings.Replace(b.read(v, present, "{place}", false), notDoomed, "IF(@interlock_from<"+none+",@interlock_doomed,'')", 1),
	})
}

// releaseName releases the named lock of an attempt, if this connection owns it.
func (b *Backend) releaseName(v values) string {
	if b.notifier == nil {
		return "0"
	}
	return "RELEASE_LOCK(" + b.notifier.name(v.req.Owner) + ")"
}

func (b *Backend) packet(v values, p packet) packet {
	f := b.fragments(v)
	for i := range p {
		p[i] = f.Replace(p[i])
	}
	return p
}

// query sends the packet and returns the rows of its last statement. Its errors are classified. If
// the server refuses a statement query ends the transaction.
func (b *Backend) query(ctx context.Context, conn *sql.Conn, p packet) (*sql.Rows, error) {
	if b.multiStatements {
		rows, err := conn.QueryContext(ctx, strings.Join(p, ";"))
		return rows, b.classifyPacket(b.rollBack(ctx, conn, err))
	}
	last := len(p) - 1
	for _, statement := range p[:last] {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return nil, classify(b.rollBack(ctx, conn, err))
		}
	}
	rows, err := conn.QueryContext(ctx, p[last])
	return rows, mark(err, true)
}

// queryOne sends the packet and reads the first row of its last statement, if there is one.
func (b *Backend) queryOne(ctx context.Context, conn *sql.Conn, p packet, into ...any) error {
	rows, err := b.query(ctx, conn, p)
	if err != nil {
		return err
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(into...)
	}
	return mark(errors.Join(err, rows.Err()), true)
}

// rollBack ends the transaction after an error of the server, and returns the error.
func (b *Backend) rollBack(ctx context.Context, conn *sql.Conn, err error) error {
	if number(err) == 0 {
		return err
	}
	if _, failed := conn.ExecContext(ctx, rollBack); failed != nil {
		discard(conn)
	}
	return err
}
