-- alone is rule in a transaction of its own. The processes to wake are woken after the commit.
CREATE PROCEDURE `interlock_alone`(
  p_op VARBINARY(10), p_name VARBINARY(1225), p_owner VARBINARY(32), p_process VARBINARY(20), p_ttl BIGINT, p_flag BOOL,
  p_metadata VARBINARY(768), p_weight INT, p_capacity INT)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE wake MEDIUMBLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    ROLLBACK AND NO CHAIN NO RELEASE;
    RESIGNAL;
  END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  CALL `interlock_rule`(p_op, p_name, p_owner, p_process, p_ttl, p_flag, p_metadata, p_weight, p_capacity, wake);
  COMMIT AND NO CHAIN NO RELEASE;
  CALL `interlock_wake`(wake);
END
