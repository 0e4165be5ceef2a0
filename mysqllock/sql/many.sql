-- many takes several operations of a process in one transaction, and answers each. p_wait is for operations on one
-- name: it waits for the row of that. Otherwise many waits for nothing, as one lock must not delay the others; what
-- has a row that is locked, or not there, it answers with busy.
-- p_list has, for each: the operation, the name and the owner in hex, the TTL, and 1 if later requests are refused.
CREATE PROCEDURE `interlock_many`(p_process VARBINARY(20), p_list MEDIUMBLOB, p_wait BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE wake MEDIUMBLOB DEFAULT '';
  DECLARE item VARBINARY(4096);
  DECLARE op VARBINARY(10);
  DECLARE key_name, found VARBINARY(1225);
  DECLARE id VARBINARY(32);
  DECLARE ttl BIGINT;
  DECLARE late, done BOOL;
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
      id = UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(item, ',', 3), ',', -1)),
      ttl = SUBSTRING_INDEX(SUBSTRING_INDEX(item, ',', 4), ',', -1), late = SUBSTRING_INDEX(item, ',', -1) = '1',
      found = NULL, done = FALSE;
    IF NOT p_wait THEN
      SELECT l.name INTO found FROM `interlock` l WHERE l.name = key_name FOR UPDATE SKIP LOCKED;
    END IF;
    IF NOT p_wait AND found IS NULL THEN
      SELECT 'busy' AS status, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS clock;
    ELSE
      IF NOT late THEN
        CALL `interlock_plain`(op, key_name, id, ttl, done);
      END IF;
      IF NOT done THEN
        CALL `interlock_rule`(op, key_name, id, p_process, ttl, late, '', 0, 0, wake);
      END IF;
    END IF;
  END WHILE;
  COMMIT AND NO CHAIN NO RELEASE;
  CALL `interlock_wake`(wake);
END
