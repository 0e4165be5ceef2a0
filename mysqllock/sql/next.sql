-- next moves p_ends and p_place to the next share holder in the order of the ends of the leases; to null behind the last
-- one. Before the first one they are 1 and 0.
CREATE PROCEDURE `interlock_next`(p_name VARBINARY(1225), INOUT p_ends BIGINT, INOUT p_place BIGINT)
  READS SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE found BIGINT;
  SELECT MIN(q.place) INTO found FROM `interlock_places` q
  WHERE q.name = p_name AND q.ends = p_ends AND q.place > p_place;
  IF found IS NULL THEN
    SELECT MIN(q.ends) INTO p_ends FROM `interlock_places` q WHERE q.name = p_name AND q.ends > p_ends;
    SELECT MIN(q.place) INTO found FROM `interlock_places` q WHERE q.name = p_name AND q.ends = p_ends;
  END IF;
  SET p_place = found;
END
