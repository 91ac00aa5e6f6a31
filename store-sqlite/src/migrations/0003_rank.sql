-- Rank is a sort key that core computes: (class, turn, due), then the id. The store sorts by it and
-- reads nothing into it; what was called `rank` is its first part. The row knows the length of its
-- payload in bytes, so that a claim is bounded before a payload is read.

ALTER TABLE jobs RENAME COLUMN rank TO class;
ALTER TABLE jobs ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN due INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN payload_bytes INTEGER NOT NULL DEFAULT 0;

UPDATE jobs SET due = run_at, priority = -class, payload_bytes =
    ifnull((SELECT octet_length(text) FROM payloads WHERE job = jobs.id), 0);

DROP INDEX ready;
CREATE INDEX ready ON jobs (queue, kind, class, turn, due) WHERE view = 0;
