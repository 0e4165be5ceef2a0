-- lock locks the row of a share holder, and sets p_place to null if a transaction with Guard has locked it. It reads by the
-- primary key: a search in a range would also lock the row behind the range for a moment, which is of another name.
CREATE PROCEDURE `interlock_lock`(p_name VARBINARY(1225), INOUT p_place BIGINT)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE found BIGINT DEFAULT NULL;
  SELECT q.place INTO found FROM `interlock_places` q WHERE q.name = p_name AND q.place = p_place FOR UPDATE SKIP LOCKED;
  SET p_place = found;
END
