-- Dead letters by the group of their error. `error_group` is core's GroupId. Jobs that did not fail
-- have no row here, and pay nothing.
--
-- A group is a row of text that is core's GroupRow; nothing here looks into it. `idle_since` is when
-- its last dead letter failed, if it has none now.

CREATE TABLE dead_letters (
    job         INTEGER PRIMARY KEY,
    error_group BLOB NOT NULL,
    at          INTEGER NOT NULL
) STRICT;

CREATE INDEX grouped ON dead_letters (error_group, at);

CREATE TABLE error_groups (
    id         BLOB PRIMARY KEY NOT NULL,
    idle_since INTEGER,
    data       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX idle_groups ON error_groups (idle_since) WHERE idle_since IS NOT NULL;
