-- inform sends an event about the end of the first lease, which is in p_left, to the earliest waiter of each process
-- among the first 16. It leaves out the process of the holder, and the waiters p_self and p_watcher.
CREATE PROCEDURE `interlock_inform`(
  p_name VARBINARY(1225), p_served BIGINT, p_process VARBINARY(20), p_self VARBINARY(32), p_watcher VARBINARY(32),
  p_sent BIGINT, p_left BIGINT, INOUT p_wake MEDIUMBLOB)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE at BIGINT DEFAULT p_served;
  DECLARE n INT DEFAULT 0;
  DECLARE w_owner VARBINARY(32);
  DECLARE w_process VARBINARY(20);
  DECLARE seen VARBINARY(400) DEFAULT CONCAT(p_process, ',');
  WHILE at IS NOT NULL AND n < 16 DO
    SET n = n + 1;
    SELECT MIN(q.place) INTO at FROM `interlock_places` q
    WHERE q.name = p_name AND q.place > at AND q.place < 4611686018427387904;
    SELECT q.owner, q.process INTO w_owner, w_process
    FROM `interlock_places` q WHERE q.name = p_name AND q.place = at;
    IF at IS NOT NULL AND LOCATE(CONCAT(w_process, ','), seen) = 0 THEN
      SET seen = CONCAT(seen, w_process, ',');
      IF w_owner <> p_self AND w_owner <> p_watcher THEN
        CALL `interlock_event`(w_process, 'ends', p_name, w_owner, 0, '', p_sent, p_left, p_wake);
      END IF;
    END IF;
  END WHILE;
END
