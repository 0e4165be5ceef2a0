-- listen deletes the events in p_seen, a list of numbers, and returns the others of a process. If there are none, it
-- sleeps until a procedure that has written one ends the sleep with KILL QUERY. The connection owns the named lock of
-- the process. It sleeps in SLEEP or, with p_named, in the wait for a named lock that another connection of the
-- process owns: on MariaDB two KILL QUERY for one SLEEP can stop the whole server for two seconds.
CREATE PROCEDURE `interlock_listen`(p_process VARBINARY(20), p_seen MEDIUMBLOB, p_seconds DOUBLE, p_named BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE slept INT DEFAULT 0;
  WHILE p_seen <> '' DO
    DELETE e FROM `interlock_events` e WHERE e.process = p_process AND e.id = SUBSTRING_INDEX(p_seen, ',', 1) + 0;
    SET p_seen = SUBSTRING(p_seen, LOCATE(',', p_seen) + 1);
  END WHILE;
  IF p_seconds > 0 AND NOT EXISTS (SELECT 1 FROM `interlock_events` e WHERE e.process = p_process) THEN
    IF p_named THEN
      SET slept = IF(GET_LOCK(CONCAT('interlock.', p_process, '.sleep'), p_seconds) = 0, 1, -1);
    ELSE
      SET slept = SLEEP(p_seconds) = 0;
    END IF;
  END IF;
  SELECT slept, slept >= 0 AND IS_USED_LOCK(CONCAT('interlock.', p_process)) = CONNECTION_ID() AS listening;
  SELECT e.id, e.kind, e.name, e.owner, e.token, e.slots, e.sent, e.lease
  FROM `interlock_events` e WHERE e.process = p_process ORDER BY e.id LIMIT 100;
END
