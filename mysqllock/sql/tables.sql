CREATE TABLE IF NOT EXISTS `interlock` (
  name          VARBINARY(1225) NOT NULL COMMENT 'prefix:name',
  token         BIGINT NOT NULL DEFAULT 0 COMMENT 'of the last grant',
  owner         VARBINARY(32) NULL COMMENT 'the attempt that holds the whole key; null: none',
  process       VARBINARY(20) NULL COMMENT 'of that attempt, and the next three',
  metadata      VARBINARY(768) NOT NULL DEFAULT '',
  since         BIGINT NOT NULL DEFAULT 0 COMMENT 'microseconds since 1970, as all times, by the server',
  unclaimed     BOOL NOT NULL DEFAULT FALSE COMMENT 'its grant was pushed, and its process has sent no request since',
  expires       BIGINT NOT NULL DEFAULT 0 COMMENT 'the end of the first lease; without holders: the last use',
  shares        INT NOT NULL DEFAULT 0 COMMENT 'the number of holders in the table of places',
  weight        INT NOT NULL DEFAULT 0 COMMENT 'the sum of their weights',
  capacity      INT NOT NULL DEFAULT 0 COMMENT '0: they are readers, else permits',
  slots         VARBINARY(1024) NOT NULL DEFAULT '' COMMENT 'a digit for each permit, 1 if it is held',
  pushed        INT NOT NULL DEFAULT 0 COMMENT 'the number of unclaimed holders among them',
  waiters       INT NOT NULL DEFAULT 0 COMMENT 'the number of waiters in the table of places',
  last          BIGINT NOT NULL DEFAULT 0 COMMENT 'the place of the last waiter that came',
  served        BIGINT NOT NULL DEFAULT 0 COMMENT 'no waiter has a place up to this',
  watcher       VARBINARY(32) NULL COMMENT 'the waiter that looks when the first lease ends',
  suspects      VARBINARY(4096) NOT NULL DEFAULT '' COMMENT 'processes, each with a comma behind it',
  lapsed        BOOL NOT NULL DEFAULT FALSE COMMENT 'the last pushed grant has ended unclaimed',
  informed      BIGINT NOT NULL DEFAULT 0 COMMENT 'when waiters were informed of a pushed grant; 0: never',
  asked         VARBINARY(32) NULL COMMENT 'the first waiter, if it was asked whether it is alive',
  asked_process VARBINARY(20) NULL,
  asked_at      BIGINT NOT NULL DEFAULT 0,
  ended         BIGINT NOT NULL DEFAULT 0 COMMENT 'until when the last tombstone of the name is valid',
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='interlock lock table, schema 5';
//
CREATE TABLE IF NOT EXISTS `interlock_places` (
  name      VARBINARY(1225) NOT NULL,
  place     BIGINT NOT NULL COMMENT 'of a waiter; of a share holder: 2^62 + its token; of a tombstone: below 0',
  owner     VARBINARY(32) NOT NULL,
  process   VARBINARY(20) NOT NULL DEFAULT '',
  metadata  VARBINARY(768) NOT NULL DEFAULT '',
  weight    INT NOT NULL DEFAULT 0 COMMENT 'permits, 1 of a reader, 0: the whole key',
  capacity  INT NOT NULL DEFAULT 0 COMMENT 'of the semaphore; 0 of a reader',
  slots     VARBINARY(1024) NOT NULL DEFAULT '' COMMENT 'the permits of a holder',
  since     BIGINT NOT NULL DEFAULT 0 COMMENT 'of a tombstone: until when it is valid',
  ttl       BIGINT NOT NULL DEFAULT 0,
  ends      BIGINT NOT NULL DEFAULT 0 COMMENT 'the end of the lease of a holder; 0: it is none',
  unclaimed BOOL NOT NULL DEFAULT FALSE,
  PRIMARY KEY (name, place),
  KEY (name, owner),
  KEY (name, ends)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='interlock waiters and share holders, schema 5';
//
CREATE TABLE IF NOT EXISTS `interlock_events` (
  process VARBINARY(20) NOT NULL COMMENT 'which reads the event and deletes it',
  id      BIGINT NOT NULL AUTO_INCREMENT,
  kind    VARBINARY(10) NOT NULL COMMENT 'granted, ends, asked, removed or lost',
  name    VARBINARY(1225) NOT NULL,
  owner   VARBINARY(32) NOT NULL,
  token   BIGINT NOT NULL DEFAULT 0,
  slots   VARBINARY(1024) NOT NULL DEFAULT '',
  sent    BIGINT NOT NULL,
  lease   BIGINT NOT NULL DEFAULT 0 COMMENT 'for how long the grant was made, or in how long a lease ends',
  PRIMARY KEY (process, id),
  KEY (id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC COMMENT='interlock events, schema 5';
//
