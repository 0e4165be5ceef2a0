-- many takes several operations of a process in one transaction, and answers each. p_wait is for operations on one
-- name: it waits for the row of that. Otherwise many waits for no lock, as one must not delay the others; what has a row
-- that is locked, or not there, it answers with busy. Only for an acquire it makes the row. Before that it commits, so that
-- it holds no row while it waits for another transaction that makes the same one.
-- p_list has, for each, with commas between them: the operation, the name and the owner in hex, the TTL, 1 for p_flag, the
-- metadata in hex, the weight and the capacity.
CREATE PROCEDURE `interlock_many`(p_process VARBINARY(20), p_list MEDIUMBLOB, p_wait BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE wake MEDIUMBLOB DEFAULT '';
  DECLARE item, rest VARBINARY(8192);
  DECLARE op VARBINARY(10);
  DECLARE key_name, found VARBINARY(1225);
  DECLARE id VARBINARY(32);
  DECLARE ttl, there BIGINT;
  DECLARE weight, capacity INT;
  DECLARE metadata VARBINARY(768);
  DECLARE flag, done BOOL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK AND NO CHAIN NO RELEASE;
    RESIGNAL;
  END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  WHILE p_list <> '' DO
    SET item = SUBSTRING_INDEX(p_list, ';', 1), p_list = SUBSTRING(p_list, LENGTH(item) + 2);
    SET op = SUBSTRING_INDEX(item, ',', 1), key_name = UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ',', 2), ',', -1)),
      id = UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ',', 3), ',', -1)), rest = SUBSTRING_INDEX(item, ',', -5),
      ttl = SUBSTRING_INDEX(rest, ',', 1), flag = SUBSTRING_INDEX(SUBSTRING_INDEX(rest, ',', 2), ',', -1) = '1',
      metadata = UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(rest, ',', 3), ',', -1)),
      weight = SUBSTRING_INDEX(SUBSTRING_INDEX(rest, ',', 4), ',', -1), capacity = SUBSTRING_INDEX(rest, ',', -1),
      found = NULL, done = FALSE;
    IF NOT p_wait THEN
      SELECT l.name INTO found FROM `interlock` l WHERE l.name = key_name FOR UPDATE SKIP LOCKED;
    END IF;
    IF NOT p_wait AND found IS NULL AND op = 'acquire' THEN
      SET there = NULL;
      SELECT l.token INTO there FROM `interlock` l WHERE l.name = key_name;
      IF there IS NULL THEN
        COMMIT AND NO CHAIN NO RELEASE;
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
        START TRANSACTION;
        SET found = key_name;
      END IF;
    END IF;
    IF NOT p_wait AND found IS NULL THEN
      SELECT 'busy' AS status, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS clock;
    ELSE
      IF op = 'acquire' OR NOT flag THEN
        CALL `interlock_plain`(op, key_name, id, p_process, ttl, metadata, weight, done);
      END IF;
      IF NOT done THEN
        CALL `interlock_rule`(op, key_name, id, p_process, ttl, flag, metadata, weight, capacity, wake);
      END IF;
    END IF;
  END WHILE;
  COMMIT AND NO CHAIN NO RELEASE;
  CALL `interlock_wake`(wake);
END
