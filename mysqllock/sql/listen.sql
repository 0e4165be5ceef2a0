-- listen returns the events of a process that are not in p_seen, a list of numbers. If there are none, it sleeps until a
-- procedure that has written one ends the sleep with KILL QUERY. If p_forget is set it deletes those in p_seen before,
-- in one transaction. The connection owns the named lock of the process. It sleeps in SLEEP or, with p_named, in the
-- wait for a named lock that another connection of the process owns: on MariaDB two KILL QUERY for one SLEEP can stop
-- the whole server for two seconds.
CREATE PROCEDURE `interlock_listen`(
  p_process VARBINARY(20), p_seen MEDIUMBLOB, p_forget BOOL, p_seconds DOUBLE, p_named BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE slept, n INT DEFAULT 0;
  DECLARE ids MEDIUMBLOB;
  IF p_forget THEN
    START TRANSACTION;
    REPEAT -- once, if no DELETE is interrupted: see rule
      SET ids = p_seen;
      WHILE ids <> '' DO
        DELETE FROM `interlock_events` WHERE process = p_process AND id = SUBSTRING_INDEX(ids, ',', 1) + 0;
        SET ids = SUBSTRING(ids, LENGTH(SUBSTRING_INDEX(ids, ',', 1)) + 2);
      END WHILE;
      SELECT COUNT(*) INTO n FROM `interlock_events` e WHERE e.process = p_process AND FIND_IN_SET(e.id, p_seen);
    UNTIL n = 0 END REPEAT;
    COMMIT AND NO CHAIN NO RELEASE;
    SET p_seen = '';
  END IF;
  -- The server forgets a KILL QUERY when a statement ends. An expression forgets nothing, so the sleep ends. The sleep is
  -- a statement, so the procedure goes on when it was ended, and the events are in the reply.
  SET n = (SELECT COUNT(*) FROM `interlock_events` e
    WHERE e.process = p_process AND NOT FIND_IN_SET(e.id, p_seen) FOR UPDATE SKIP LOCKED);
  IF p_seconds > 0 AND n = 0 THEN
    IF p_named THEN
      SELECT CASE GET_LOCK(CONCAT('interlock.', p_process, '.sleep'), p_seconds) WHEN 0 THEN 1 WHEN 1 THEN -1 ELSE 0 END
      INTO slept;
    ELSE
      SELECT SLEEP(p_seconds) INTO slept;
      SET slept = slept = 0;
    END IF;
  END IF;
  SELECT slept, slept >= 0 AND IS_USED_LOCK(CONCAT('interlock.', p_process)) = CONNECTION_ID() AS listening;
  SELECT e.id, e.kind, e.name, e.owner, e.token, e.slots, e.sent, e.lease
  FROM `interlock_events` e WHERE e.process = p_process AND NOT FIND_IN_SET(e.id, p_seen) ORDER BY e.id LIMIT 100;
END
