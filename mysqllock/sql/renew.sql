-- renew renews share holders of one name in a few statements, however many they are. The first answer is that of rule, if
-- a step of it may be due after this; then there is one for each in their order: held, or busy if many is to renew it.
-- That is so for all if the lease of a holder has ended, or a transaction of Guard has locked one of these.
-- p_owners is a list in JSON. Rows are found by equality in one index, which locks none of another name.
CREATE PROCEDURE `interlock_renew`(
  p_name VARBINARY(1225), p_process VARBINARY(20), p_owners MEDIUMTEXT, p_ttl BIGINT)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE wake MEDIUMBLOB DEFAULT '';
  DECLARE t, first_end, new_end BIGINT;
  DECLARE found, claimed INT DEFAULT 0;
  DECLARE alone, guarded BOOL DEFAULT FALSE;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK AND NO CHAIN NO RELEASE;
    RESIGNAL;
  END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  SELECT l.expires, l.waiters = 0 AND l.pushed = 0 AND l.suspects = '' INTO first_end, alone
  FROM `interlock` l WHERE l.name = p_name FOR UPDATE;
  SET t = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), new_end = t + p_ttl;
  IF first_end > t THEN
    SELECT COUNT(*), COALESCE(SUM(q.unclaimed), 0) INTO found, claimed
    FROM (SELECT CAST(j.owner AS BINARY) AS owner FROM JSON_TABLE(p_owners, '$[*]' COLUMNS (owner VARCHAR(32) PATH '$')) j) w
    STRAIGHT_JOIN `interlock_places` q FORCE INDEX (name)
    WHERE q.name = p_name AND q.owner = w.owner AND q.ends > t FOR UPDATE SKIP LOCKED;
    IF found < JSON_LENGTH(p_owners) THEN
      SELECT COUNT(*) > found INTO guarded
      FROM JSON_TABLE(p_owners, '$[*]' COLUMNS (owner VARCHAR(32) PATH '$')) j
      STRAIGHT_JOIN `interlock_places` q FORCE INDEX (name)
      WHERE q.name = p_name AND q.owner = CAST(j.owner AS BINARY) AND q.ends > t;
    END IF;
  END IF;
  IF found > 0 AND NOT guarded THEN
    INSERT INTO `interlock_places` (name, place, owner)
    SELECT q.name, q.place, '' FROM JSON_TABLE(p_owners, '$[*]' COLUMNS (owner VARCHAR(32) PATH '$')) j
    STRAIGHT_JOIN `interlock_places` q FORCE INDEX (name)
    WHERE q.name = p_name AND q.owner = CAST(j.owner AS BINARY) AND q.ends > t
    ON DUPLICATE KEY UPDATE ends = GREATEST(`interlock_places`.ends, new_end), unclaimed = FALSE;
    IF claimed > 0 THEN
      INSERT INTO `interlock` (name) VALUES (p_name) ON DUPLICATE KEY UPDATE pushed = pushed - claimed, lapsed = FALSE;
    END IF;
  END IF;
  IF found = 0 OR guarded OR alone THEN
    SELECT 'held' AS status, t AS clock;
  ELSE
    CALL `interlock_rule`('live', p_name, '', p_process, 0, FALSE, '', 0, 0, wake);
  END IF;
  SELECT IF(q.owner IS NULL, 'busy', 'held') AS status, t AS clock
  FROM JSON_TABLE(p_owners, '$[*]' COLUMNS (n FOR ORDINALITY, owner VARCHAR(32) PATH '$')) j
  LEFT JOIN `interlock_places` q FORCE INDEX (name) ON q.name = p_name AND q.owner = CAST(j.owner AS BINARY)
    AND q.ends >= new_end AND NOT q.unclaimed
  ORDER BY j.n;
  COMMIT AND NO CHAIN NO RELEASE;
  CALL `interlock_wake`(wake);
END
