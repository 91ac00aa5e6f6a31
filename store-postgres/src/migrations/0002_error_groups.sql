-- Dead letters by the group of their error: core's GroupId, NULL for other finished jobs.
--
-- A group is a row of text that is core's GroupRow; nothing here looks into it. `idle_since` is when
-- its last dead letter failed, if it has none now.

ALTER TABLE done ADD COLUMN error_group bytea;

CREATE INDEX done_by_group ON done (error_group, finished_at, id) WHERE error_group IS NOT NULL;

CREATE TABLE error_groups (
    id         bytea PRIMARY KEY,
    idle_since bigint,
    data       text NOT NULL
);

CREATE INDEX idle_groups ON error_groups (idle_since) WHERE idle_since IS NOT NULL;
