-- The first schema. Instants are milliseconds of the Unix epoch, lengths are milliseconds.
-- Names and retry policies are written once and referred to by number, so that rows and indexes
-- stay narrow. Numbers are never reused.

CREATE TABLE meta (
    key     TEXT PRIMARY KEY NOT NULL,
    value   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('last_id', 0);

CREATE TABLE queues (
    id      INTEGER PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE,
    paused  INTEGER NOT NULL DEFAULT 0,
    max_queued          INTEGER,
    concurrency         INTEGER,
    visibility_timeout  INTEGER,
    max_retries         INTEGER,
    timeout             INTEGER,
    retry               INTEGER
) STRICT;

CREATE TABLE kinds (
    id      INTEGER PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE
) STRICT;

-- strategy: 0 fixed, 1 linear, 2 exponential; factor and jitter in thousandths.
CREATE TABLE retries (
    id       INTEGER PRIMARY KEY,
    strategy INTEGER NOT NULL,
    factor   INTEGER NOT NULL,
    initial  INTEGER NOT NULL,
    cap      INTEGER NOT NULL,
    jitter   INTEGER NOT NULL,
    UNIQUE (strategy, factor, initial, cap, jitter)
) STRICT;

-- The hot row. `view` is the place in core's View::ALL: 0 queued, 1 scheduled, 2 processing,
-- 3 done, 4 failed, 5 cancelled. `at` is the instant the view is ordered by: when it is due, when
-- its lease ends, when it finished. `rank` is the priority with its sign turned, so that the best
-- comes first in ascending order.
CREATE TABLE jobs (
    id          INTEGER PRIMARY KEY,
    view        INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    queue       INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    rank        INTEGER NOT NULL,
    run_at      INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    max_retries INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    visibility_timeout INTEGER NOT NULL,
    retry       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    started_at  INTEGER,
    timeout     INTEGER,
    spent       INTEGER,
    lease_length INTEGER,
    worker      TEXT,
    idempotency_key TEXT
) STRICT;

-- Claims seek here: the ready jobs of one queue and kind, by rank.
CREATE INDEX ready ON jobs (queue, kind, rank, run_at) WHERE view = 0;
-- Everything else is found by time: what is due, which lease ends, what finished.
CREATE INDEX by_time ON jobs (view, at);

CREATE TABLE payloads (job INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
CREATE TABLE results (job INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
CREATE TABLE progress (job INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
CREATE TABLE errors (
    job  INTEGER PRIMARY KEY,
    text TEXT NOT NULL,
    cut  INTEGER NOT NULL
) STRICT;

CREATE TABLE attempts (
    job         INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    worker      TEXT NOT NULL,
    started_at  INTEGER NOT NULL,
    ended_at    INTEGER NOT NULL,
    outcome     INTEGER NOT NULL,
    error       TEXT,
    error_cut   INTEGER,
    exit_code   INTEGER,
    stdout      TEXT,
    stdout_cut  INTEGER,
    stderr      TEXT,
    stderr_cut  INTEGER,
    PRIMARY KEY (job, epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE counts (
    queue       INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    queued      INTEGER NOT NULL DEFAULT 0,
    scheduled   INTEGER NOT NULL DEFAULT 0,
    processing  INTEGER NOT NULL DEFAULT 0,
    done        INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    cancelled   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    key          TEXT PRIMARY KEY NOT NULL,
    job          INTEGER NOT NULL,
    request      BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    orphan_until INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX orphans ON keys (orphan_until) WHERE orphan_until IS NOT NULL;

CREATE TABLE workers (
    id         TEXT PRIMARY KEY NOT NULL,
    host       TEXT NOT NULL,
    pid        INTEGER,
    kind       INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    last_seen  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE settings (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The latest committed batch of each process: proof of a commit.
CREATE TABLE markers (
    process INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL
) STRICT;
