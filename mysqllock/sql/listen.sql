-- listen returns the events of a process that are not in p_seen, a list of numbers. If there are none, it sleeps until a
-- procedure that has written one ends the sleep with KILL QUERY. If p_forget is set it deletes those in p_seen before,
-- in one transaction. The connection owns the named lock of the process. It sleeps in SLEEP or, with p_named, in the
-- wait for a named lock that another connection of the process owns: on MariaDB two KILL QUERY for one SLEEP can stop
-- the whole server for two seconds.
CREATE PROCEDURE `interlock_listen`(
  p_process VARBINARY(20), p_seen MEDIUMBLOB, p_forget BOOL, p_seconds DOUBLE, p_named BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE slept INT DEFAULT 0;
  IF p_forget AND p_seen <> '' THEN
    START TRANSACTION;
    WHILE p_seen <> '' DO
      DELETE e FROM `interlock_events` e WHERE e.process = p_process AND e.id = SUBSTRING_INDEX(p_seen, ',', 1) + 0;
      SET p_seen = SUBSTRING(p_seen, LENGTH(SUBSTRING_INDEX(p_seen, ',', 1)) + 2);
    END WHILE;
    COMMIT AND NO CHAIN NO RELEASE;
  END IF;
  IF p_seconds > 0 AND NOT EXISTS (
    SELECT 1 FROM `interlock_events` e WHERE e.process = p_process AND NOT FIND_IN_SET(e.id, p_seen)) THEN
    IF p_named THEN
      SET slept = IF(GET_LOCK(CONCAT('interlock.', p_process, '.sleep'), p_seconds) = 0, 1, -1);
    ELSE
      SET slept = SLEEP(p_seconds) = 0;
    END IF;
  END IF;
  SELECT slept, slept >= 0 AND IS_USED_LOCK(CONCAT('interlock.', p_process)) = CONNECTION_ID() AS listening;
  SELECT e.id, e.kind, e.name, e.owner, e.token, e.slots, e.sent, e.lease
  FROM `interlock_events` e WHERE e.process = p_process AND NOT FIND_IN_SET(e.id, p_seen) ORDER BY e.id LIMIT 100;
END
