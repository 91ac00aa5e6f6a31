-- The first schema. Instants are milliseconds of the Unix epoch, lengths are milliseconds. Names and
-- retry policies are written once and referred to by number. Numbers are never reused.
--
-- What never changes about a job is in `jobs`. What changes is a thin row with the same id in exactly
-- one of `ready`, `scheduled`, `leased` and `done`. A job moves by a delete by id and an insert.

-- 'schema' is the number of the last migration. 'names' grows with each change of `queues`, `kinds`
-- and `pairs`: nodes keep copies of these. 'last_id' is the highest id of jobs whose marker is gone.
CREATE TABLE meta (
    key     text COLLATE "C" PRIMARY KEY,
    value   bigint NOT NULL
);

INSERT INTO meta (key, value) VALUES ('windlass', 1), ('schema', 0), ('names', 0), ('last_id', 0);

CREATE SEQUENCE ids AS bigint;

CREATE TABLE queues (
    id      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text COLLATE "C" NOT NULL UNIQUE,
    paused  boolean NOT NULL,
    max_queued          bigint,
    concurrency         bigint,
    visibility_timeout  bigint,
    max_retries         bigint,
    timeout             bigint,
    retry               integer
);

CREATE TABLE kinds (
    id      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text COLLATE "C" NOT NULL UNIQUE
);

-- strategy: 0 fixed, 1 linear, 2 exponential; factor and jitter in thousandths.
CREATE TABLE retries (
    id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    strategy bigint NOT NULL,
    factor   bigint NOT NULL,
    initial  bigint NOT NULL,
    cap      bigint NOT NULL,
    jitter   bigint NOT NULL,
    UNIQUE (strategy, factor, initial, cap, jitter)
);

-- The queues and kinds that have jobs, or have had some lately. A claim asks for these.
CREATE TABLE pairs (
    queue   integer NOT NULL,
    kind    integer NOT NULL,
    PRIMARY KEY (queue, kind)
);

CREATE TABLE jobs (
    id          bigint PRIMARY KEY,
    created_at  bigint NOT NULL,
    visibility_timeout bigint NOT NULL,
    timeout     bigint,
    queue       integer NOT NULL,
    kind        integer NOT NULL,
    retry       integer NOT NULL,
    max_retries integer NOT NULL,
    payload_bytes integer NOT NULL,
    priority    smallint NOT NULL,
    idempotency_key text COLLATE "C",
    payload     text NOT NULL
);

CREATE INDEX jobs_by_pair ON jobs (queue, kind, id);
CREATE INDEX jobs_by_key ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- `run_at` is NULL where it equals `due`, as it mostly does. `spent` is the last verdict.
CREATE TABLE ready (
    id          bigint PRIMARY KEY,
    turn        bigint NOT NULL,
    due         bigint NOT NULL,
    epoch       bigint NOT NULL,
    updated_at  bigint NOT NULL,
    started_at  bigint,
    run_at      bigint,
    queue       integer NOT NULL,
    kind        integer NOT NULL,
    attempts    integer NOT NULL,
    generation  integer NOT NULL,
    class       smallint NOT NULL,
    spent       smallint
);

CREATE INDEX ready_by_rank ON ready (queue, kind, class, turn, due, id);

CREATE TABLE scheduled (
    id          bigint PRIMARY KEY,
    run_at      bigint NOT NULL,
    turn        bigint NOT NULL,
    due         bigint NOT NULL,
    epoch       bigint NOT NULL,
    updated_at  bigint NOT NULL,
    started_at  bigint,
    queue       integer NOT NULL,
    kind        integer NOT NULL,
    attempts    integer NOT NULL,
    generation  integer NOT NULL,
    class       smallint NOT NULL,
    spent       smallint
);

CREATE INDEX scheduled_by_time ON scheduled (run_at, id);
CREATE INDEX scheduled_by_pair ON scheduled (queue, kind, run_at, id);

CREATE TABLE leased (
    id          bigint PRIMARY KEY,
    lease_until bigint NOT NULL,
    lease_length bigint NOT NULL,
    turn        bigint NOT NULL,
    due         bigint NOT NULL,
    epoch       bigint NOT NULL,
    updated_at  bigint NOT NULL,
    started_at  bigint,
    run_at      bigint,
    attempts    integer NOT NULL,
    generation  integer NOT NULL,
    class       smallint NOT NULL,
    worker      text COLLATE "C" NOT NULL
);

CREATE INDEX leased_by_time ON leased (lease_until, id);

-- `view` is the place in core's View::ALL: 3 done, 4 failed, 5 cancelled.
CREATE TABLE done (
    id          bigint PRIMARY KEY,
    finished_at bigint NOT NULL,
    turn        bigint NOT NULL,
    due         bigint NOT NULL,
    epoch       bigint NOT NULL,
    updated_at  bigint NOT NULL,
    started_at  bigint,
    run_at      bigint,
    queue       integer NOT NULL,
    kind        integer NOT NULL,
    attempts    integer NOT NULL,
    generation  integer NOT NULL,
    class       smallint NOT NULL,
    view        smallint NOT NULL,
    spent       smallint
);

CREATE INDEX done_by_time ON done (view, finished_at, id);
CREATE INDEX done_by_pair ON done (queue, kind, view, finished_at, id);

CREATE TABLE results (job bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE progress (job bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE errors (job bigint PRIMARY KEY, text text NOT NULL, cut boolean NOT NULL);

CREATE TABLE attempts (
    job         bigint NOT NULL,
    epoch       bigint NOT NULL,
    started_at  bigint NOT NULL,
    ended_at    bigint NOT NULL,
    worker      text COLLATE "C" NOT NULL,
    outcome     smallint NOT NULL,
    error       text,
    error_cut   boolean,
    exit_code   integer,
    stdout      text,
    stdout_cut  boolean,
    stderr      text,
    stderr_cut  boolean,
    PRIMARY KEY (job, epoch)
);

-- Each process adds to rows of its own, so that no two wait for each other. A counter is the sum over
-- all processes; rows of processes that are gone are added up under process 0.
CREATE TABLE counts (
    queue       integer NOT NULL,
    kind        integer NOT NULL,
    process     bigint NOT NULL,
    queued      bigint NOT NULL,
    scheduled   bigint NOT NULL,
    processing  bigint NOT NULL,
    done        bigint NOT NULL,
    failed      bigint NOT NULL,
    cancelled   bigint NOT NULL,
    PRIMARY KEY (queue, kind, process)
) WITH (fillfactor = 50);

CREATE TABLE keys (
    key          text COLLATE "C" PRIMARY KEY,
    job          bigint NOT NULL,
    created_at   bigint NOT NULL,
    orphan_until bigint,
    request      bytea NOT NULL
);

CREATE INDEX orphans ON keys (orphan_until, key) WHERE orphan_until IS NOT NULL;

CREATE TABLE workers (
    id         text COLLATE "C" PRIMARY KEY,
    host       text NOT NULL,
    instance   text,
    demand     text NOT NULL,
    pid        bigint,
    slots      bigint NOT NULL,
    presence   bigint NOT NULL,
    started_at bigint NOT NULL,
    last_seen  bigint NOT NULL,
    kind       smallint NOT NULL,
    stopping   boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE TABLE settings (
    key   text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- The latest committed batch of each process: proof of a commit. `last_id` is the highest id that it
-- has given to a job.
CREATE TABLE markers (
    process bigint PRIMARY KEY,
    seq     bigint NOT NULL,
    at      bigint NOT NULL,
    last_id bigint NOT NULL
) WITH (fillfactor = 50);

-- What happened to jobs, as numbers. `span` is the place in core's Span::ALL; `slot` is the start of
-- the time that a row covers; `process` is zero but for the rows that one process adds to. `data` is
-- core's FigureSet; nothing here looks into it.
CREATE TABLE figures (
    slot    bigint NOT NULL,
    process bigint NOT NULL,
    span    smallint NOT NULL,
    data    bytea NOT NULL,
    PRIMARY KEY (span, slot, process)
);
