-- What never changes about a job moves from the row that each step of the job rewrites to a row of
-- its own, together with the payload. `jobs.run_at` is NULL where it equals `due`, as it mostly does.
--
-- Each job is in the index by_pair for good, so that lists by queue and kind seek. Ready jobs are in
-- the index ready alone, leased ones in the index leased alone: it stays small, and both it and
-- by_time grow at their ends. Scheduled and finished jobs are in by_time and, by queue, kind and
-- view, in the index settled.
--
-- A row keeps its length from the enqueue to the end of its first lease, so that it is changed in
-- its place: `worker` holds spaces as room for the holder, and `lease_length` and `worker` of the last
-- lease stay behind when it has ended. Only the view says whether a job is leased.

CREATE TABLE bodies (
    job         INTEGER PRIMARY KEY,
    priority    INTEGER NOT NULL,
    max_retries INTEGER NOT NULL,
    visibility_timeout INTEGER NOT NULL,
    retry       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    timeout     INTEGER,
    idempotency_key TEXT,
    text        TEXT NOT NULL
) STRICT;

INSERT INTO bodies (job, priority, max_retries, visibility_timeout, retry, created_at, timeout,
                    idempotency_key, text)
    SELECT id, priority, max_retries, visibility_timeout, retry, created_at, timeout,
           idempotency_key, ifnull(text, '')
    FROM jobs LEFT JOIN payloads ON job = id ORDER BY id;

CREATE INDEX by_key ON bodies (idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE hot_jobs (
    id          INTEGER PRIMARY KEY,
    view        INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    queue       INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    class       INTEGER NOT NULL,
    turn        INTEGER NOT NULL,
    due         INTEGER NOT NULL,
    run_at      INTEGER,
    attempts    INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    payload_bytes INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    started_at  INTEGER,
    spent       INTEGER,
    lease_length INTEGER,
    worker      TEXT
) STRICT;

INSERT INTO hot_jobs (id, view, at, queue, kind, class, turn, due, run_at, attempts, epoch,
                      generation, payload_bytes, updated_at, started_at, spent, lease_length,
                      worker)
    SELECT id, view, at, queue, kind, class, turn, due, nullif(run_at, due), attempts, epoch,
           generation, payload_bytes, updated_at, started_at, spent, lease_length, worker
    FROM jobs ORDER BY id;

DROP TABLE payloads;
DROP TABLE jobs;
ALTER TABLE hot_jobs RENAME TO jobs;

CREATE INDEX ready ON jobs (queue, kind, class, turn, due) WHERE view = 0;
CREATE INDEX leased ON jobs (at) WHERE view = 2;
CREATE INDEX by_time ON jobs (view, at) WHERE view <> 0 AND view <> 2;
CREATE INDEX by_pair ON jobs (queue, kind);
CREATE INDEX settled ON jobs (queue, kind, view, at) WHERE view <> 0 AND view <> 2;

-- The key of a counter is `queue << 32 | kind`: an integer is found with fewer comparisons.
CREATE TABLE pair_counts (
    pair        INTEGER PRIMARY KEY,
    queued      INTEGER NOT NULL,
    scheduled   INTEGER NOT NULL,
    processing  INTEGER NOT NULL,
    done        INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL
) STRICT;

INSERT INTO pair_counts (pair, queued, scheduled, processing, done, failed, cancelled)
    SELECT queue << 32 | kind, queued, scheduled, processing, done, failed, cancelled
    FROM counts ORDER BY queue, kind;

DROP TABLE counts;
ALTER TABLE pair_counts RENAME TO counts;
