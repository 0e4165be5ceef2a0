-- event writes an event for a process that listens, and adds the process to those to wake after the commit.
CREATE PROCEDURE `interlock_event`(
  p_process VARBINARY(20), p_kind VARBINARY(10), p_name VARBINARY(1225), p_owner VARBINARY(32), p_token BIGINT,
  p_slots VARBINARY(1024), p_sent BIGINT, p_lease BIGINT, INOUT p_wake MEDIUMBLOB)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  IF LEFT(p_process, 1) = 'l' AND IS_USED_LOCK(CONCAT('interlock.', p_process)) IS NOT NULL THEN
    INSERT INTO `interlock_events` (process, kind, name, owner, token, slots, sent, lease)
    VALUES (p_process, p_kind, p_name, p_owner, p_token, p_slots, p_sent, p_lease);
    IF LOCATE(p_process, p_wake) = 0 THEN
      SET p_wake = CONCAT(p_wake, p_process, ',');
    END IF;
  END IF;
END
