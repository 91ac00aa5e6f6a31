//! Writes what a batch changed: each row once, each statement prepared once.

use rusqlite::{Connection, params};
use windlass_core::store::{
    ByteBudget, Changes, CountDelta, Doc, Marker, Moved, Worker, WorkerKind,
};
use windlass_core::{
    AttemptOutcome, Excerpt, IndexKey, Job, KeyRecord, LeaseLength, Payload, Queue, State, View,
    Wall, WorkerId, WorkerVersion,
};

use crate::bulk;
use crate::error::TxError;
use crate::figures;
use crate::find::{Found, count};
use crate::groups;
use crate::insert::{BODIES, COUNTS, JOBS, insert_rows};
use crate::names::{Names, pair_key};
use crate::rows::{
    ROOM, id_code, last_verdict_code, place, position, rank_code, run_at_code, view_code,
    worker_code,
};
use crate::settings;

/// Writes everything a batch changed.
pub(crate) fn write(
    conn: &Connection,
    names: &mut Names,
    changes: &Changes,
    now: Wall,
) -> Found<()> {
    for queue in &changes.queues {
        put_queue(conn, names, queue)?;
    }
    insert_jobs(conn, names, changes)?;
    update_jobs(conn, &changes.updates)?;
    remove_jobs(conn, &changes.removes)?;
    put_docs(conn, changes)?;
    put_attempts(conn, changes)?;
    put_keys(conn, changes)?;
    add_counts(conn, names, &changes.counts)?;
    put_tats(conn, names, changes)?;
    settings::write(conn, changes)?;
    put_workers(conn, changes, now)?;
    figures::write(conn, changes)?;
    groups::write(conn, changes)?;
    bulk::write(conn, changes)?;
    if let Some(next) = changes.next_id {
        let sql = "UPDATE meta SET value = max(value, ?1) WHERE key = 'last_id'";
        conn.prepare_cached(sql)?.execute([id_code(next) - 1])?;
    }
    if let Some(marker) = &changes.marker {
        put_marker(conn, marker)?;
    }
    Ok(())
}

fn put_queue(conn: &Connection, names: &mut Names, queue: &Queue) -> Found<()> {
    let id = names.ensure_queue(conn, &queue.name)?;
    let settings = &queue.settings;
    let retry = settings.retry.map(|retry| names.ensure_retry(conn, retry)).transpose()?;
    let sql = "UPDATE queues SET paused = ?2, max_queued = ?3, concurrency = ?4, \
               visibility_timeout = ?5, max_retries = ?6, timeout = ?7, retry = ?8, \
               paused_at = ?9, paused_by = ?10, flow = ?11 WHERE id = ?1";
    let pause = queue.paused.as_ref();
    conn.prepare_cached(sql)?.execute(params![
        id,
        queue.is_paused(),
        settings.max_queued.map(|most| most.get().cast_signed()),
        settings.concurrency.map(|most| i64::from(most.get())),
        settings.visibility_timeout.map(|length| length.get().cast_signed()),
        settings.max_retries.map(|retries| i64::from(retries.get())),
        settings.timeout.map(|timeout| timeout.get().cast_signed()),
        retry,
        pause.and_then(|pause| pause.at).map(Wall::get),
        pause.and_then(|pause| pause.by.as_deref()),
        settings.flow.to_text(),
    ])?;
    Ok(())
}

fn put_tats(conn: &Connection, names: &mut Names, changes: &Changes) -> Found<()> {
    for (queue, tats) in &changes.tats {
        let queue = names.ensure_queue(conn, queue)?;
        match tats {
            Some(tats) => {
                let sql = "INSERT INTO rates (queue, tats) VALUES (?1, ?2) \
                           ON CONFLICT (queue) DO UPDATE SET tats = excluded.tats";
                conn.prepare_cached(sql)?.execute(params![queue, tats])?;
            }
            None => {
                conn.prepare_cached("DELETE FROM rates WHERE queue = ?1")?.execute([queue])?;
            }
        }
    }
    Ok(())
}

fn insert_jobs(conn: &Connection, names: &mut Names, changes: &Changes) -> Found<()> {
    let jobs = changes.inserts.as_slice();
    let Some(last) = jobs.last() else { return Ok(()) };
    // Most batches are of one queue and kind.
    let mut latest: Option<(&Job, [i64; 3])> = None;
    let mut numbers_of = |names: &mut Names, job| {
        let numbers = match latest {
            Some((latest, numbers)) if same_names(latest, job) => numbers,
            _ => numbers(conn, names, job)?,
        };
        latest = Some((job, numbers));
        Found::Ok(numbers)
    };
    insert_rows(conn, &JOBS, jobs, |job, row| {
        let [queue, kind, _] = numbers_of(names, job)?;
        let (view, at) = place(job);
        let (class, turn, due, id) = rank_code(job.rank);
        let lease = job.lease();
        row.put(params![
            id,
            view,
            at,
            queue,
            kind,
            class,
            turn,
            due,
            run_at_code(job),
            job.attempts,
            job.epoch.get().cast_signed(),
            job.generation,
            job.payload_bytes,
            job.updated_at.get(),
            job.started_at.map(Wall::get),
            last_verdict_code(&job.state),
            length(lease.map_or(job.visibility_timeout, |lease| lease.length)),
            lease.map(|lease| worker_code(&lease.worker)).as_deref().unwrap_or(ROOM),
        ])
    })?;
    insert_bodies(conn, changes, |job| Ok(numbers_of(names, job)?[2]))?;
    let sql = "UPDATE meta SET value = ?1 WHERE key = 'last_id'";
    conn.prepare_cached(sql)?.execute([id_code(last.id)])?;
    Ok(())
}

/// Maximum bytes of payloads in one statement, unless it is one payload: SQLite copies them.
const PAYLOAD_BYTES: usize = 1024 * 1024;

fn insert_bodies<'c>(
    conn: &Connection,
    changes: &'c Changes,
    mut retry: impl FnMut(&'c Job) -> Found<i64>,
) -> Found<()> {
    let payloads = changes.docs.iter().filter(|write| write.doc == Doc::Payload);
    let bodies: Vec<(&Job, &Payload)> = changes
        .inserts
        .iter()
        .zip(payloads)
        .filter(|(job, write)| job.id == write.job)
        .map(|(job, write)| (job, &write.text))
        .collect();
    if bodies.len() < changes.inserts.len() {
        return Err(TxError::BadRow("a new job has no payload".into()));
    }
    let mut rest = bodies.as_slice();
    while !rest.is_empty() {
        let mut budget = ByteBudget::new(PAYLOAD_BYTES);
        let fit = rest.iter().take_while(|(_, text)| budget.takes(text.as_str().len())).count();
        let (some, others) = rest.split_at(fit.max(1));
        insert_rows(conn, &BODIES, some, |(job, text), row| {
            row.put(params![
                id_code(job.id),
                job.priority.get(),
                job.max_retries.get(),
                length(job.visibility_timeout),
                retry(job)?,
                job.created_at.get(),
                job.timeout.map(|timeout| timeout.get().cast_signed()),
                job.idempotency_key.as_ref().map(windlass_core::IdempotencyKey::as_str),
                text.as_str(),
            ])
        })?;
        rest = others;
    }
    Ok(())
}

/// The numbers of a job's queue, kind and retry policy.
fn numbers(conn: &Connection, names: &mut Names, job: &Job) -> Found<[i64; 3]> {
    Ok([
        names.ensure_queue(conn, &job.queue)?,
        names.ensure_kind(conn, &job.kind)?,
        names.ensure_retry(conn, job.retry)?,
    ])
}

fn same_names(a: &Job, b: &Job) -> bool {
    a.queue.same(&b.queue) && a.kind.same(&b.kind) && a.retry == b.retry
}

/// Changed rows, by the narrowest statement that fits: the hot path is a claim or an end. Jobs that
/// were enqueued together are mostly claimed and ended together: neighbours that change alike are
/// changed by one statement.
fn update_jobs(conn: &Connection, jobs: &[Moved]) -> Found<()> {
    let mut rest = Vec::new();
    let mut leased = conn.prepare_cached(LEASED)?;
    let mut finished = conn.prepare_cached(FINISHED)?;
    for run in jobs.chunk_by(change_alike) {
        let [Moved { from, job }, ..] = run else { continue };
        let (first, last) = (id_code(job.id), id_code(job.id) + count(run.len()) - 1);
        let (view, at) = place(job);
        match &job.state {
            State::Processing(lease) if keeps_place(from, job) => {
                let changed = leased.execute(params![
                    first,
                    last,
                    at,
                    job.attempts,
                    job.epoch.get().cast_signed(),
                    job.updated_at.get(),
                    job.started_at.map(Wall::get),
                    length(lease.length),
                    worker_code(&lease.worker),
                    view_code(from.view),
                    from.at.get(),
                    from.epoch.get().cast_signed(),
                ])?;
                replaced(job, run.len(), changed)?;
            }
            State::Done { .. } | State::Failed { .. } if ends(from, job) => {
                let changed = finished.execute(params![
                    first,
                    last,
                    view,
                    at,
                    job.updated_at.get(),
                    last_verdict_code(&job.state),
                    from.at.get(),
                    from.epoch.get().cast_signed(),
                ])?;
                replaced(job, run.len(), changed)?;
            }
            _ => rest.extend(run),
        }
    }
    update_all_columns(conn, &rest)
}

/// Checks that a write has met the rows it was to replace, and no others.
fn replaced(first: &Job, rows: usize, changed: usize) -> Found<()> {
    if rows == changed { Ok(()) } else { Err(TxError::Conflict(first.id)) }
}

fn keeps_place(from: &IndexKey, job: &Job) -> bool {
    (from.run_at, from.rank, from.generation) == (job.run_at, job.rank, job.generation)
}

fn ends(from: &IndexKey, job: &Job) -> bool {
    from.view == View::Processing && keeps_place(from, job)
}

/// Whether the second is the next job by its number, and one of the statements below writes the
/// same into both.
fn change_alike(a: &Moved, b: &Moved) -> bool {
    let (one, other) = (&a.job, &b.job);
    let from = |moved: &Moved| (moved.from.view, moved.from.at, moved.from.epoch);
    if one.id.plus(1) != other.id
        || one.state != other.state
        || one.updated_at != other.updated_at
        || from(a) != from(b)
    {
        return false;
    }
    match one.state {
        State::Processing(_) => {
            let written = |job: &Job| (job.attempts, job.epoch, job.started_at);
            keeps_place(&a.from, one)
                && keeps_place(&b.from, other)
                && written(one) == written(other)
        }
        State::Done { .. } | State::Failed { .. } => ends(&a.from, one) && ends(&b.from, other),
        State::Queued { .. } | State::Cancelled { .. } => false,
    }
}

/// Jobs that are leased, or whose lease goes on: they keep their places among the waiting. The plus
/// keeps SQLite from seeking by `view`.
const LEASED: &str = "UPDATE OR FAIL jobs SET view = 2, at = ?3, attempts = ?4, epoch = ?5, \
    updated_at = ?6, started_at = ?7, lease_length = ?8, worker = ?9, spent = NULL \
    WHERE id BETWEEN ?1 AND ?2 AND +view = ?10 AND at = ?11 AND epoch = ?12";
/// Leased jobs that have ended: nothing changes but where they are. The last lease stays in the
/// row, which keeps its length so.
const FINISHED: &str = "UPDATE OR FAIL jobs SET view = ?3, at = ?4, updated_at = ?5, spent = ?6 \
    WHERE id BETWEEN ?1 AND ?2 AND +view = 2 AND at = ?7 AND epoch = ?8";

fn update_all_columns(conn: &Connection, jobs: &[&Moved]) -> Found<()> {
    let sql = "UPDATE jobs SET view = ?2, at = ?3, run_at = ?4, attempts = ?5, epoch = ?6, \
               generation = ?7, updated_at = ?8, started_at = ?9, spent = ?10, \
               lease_length = ?11, worker = ?12, class = ?13, turn = ?14, due = ?15 \
               WHERE id = ?1 AND +view = ?16 AND at = ?17 AND epoch = ?18";
    let mut update = conn.prepare_cached(sql)?;
    for Moved { from, job } in jobs {
        let (view, at) = place(job);
        let (class, turn, due, id) = rank_code(job.rank);
        let lease = job.lease();
        let changed = update.execute(params![
            id,
            view,
            at,
            run_at_code(job),
            job.attempts,
            job.epoch.get().cast_signed(),
            job.generation,
            job.updated_at.get(),
            job.started_at.map(Wall::get),
            last_verdict_code(&job.state),
            lease.map(|lease| length(lease.length)),
            lease.map(|lease| worker_code(&lease.worker)),
            class,
            turn,
            due,
            view_code(from.view),
            from.at.get(),
            from.epoch.get().cast_signed(),
        ])?;
        replaced(job, 1, changed)?;
    }
    Ok(())
}

fn remove_jobs(conn: &Connection, jobs: &[Moved]) -> Found<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let sql = "DELETE FROM jobs WHERE id = ?1 AND +view = ?2 AND at = ?3 AND epoch = ?4";
    let mut delete = conn.prepare_cached(sql)?;
    for Moved { from, job } in jobs {
        let epoch = from.epoch.get().cast_signed();
        let place = params![id_code(job.id), view_code(from.view), from.at.get(), epoch];
        replaced(job, 1, delete.execute(place)?)?;
    }
    for sql in [
        "DELETE FROM bodies WHERE job = ?1",
        "DELETE FROM results WHERE job = ?1",
        "DELETE FROM progress WHERE job = ?1",
        "DELETE FROM errors WHERE job = ?1",
        "DELETE FROM attempts WHERE job = ?1",
    ] {
        let mut delete = conn.prepare_cached(sql)?;
        for Moved { job, .. } in jobs {
            delete.execute([id_code(job.id)])?;
        }
    }
    Ok(())
}

fn put_docs(conn: &Connection, changes: &Changes) -> Found<()> {
    for (doc, sql) in [
        (Doc::Result, "INSERT OR REPLACE INTO results (job, text) VALUES (?1, ?2)"),
        (Doc::Progress, "INSERT OR REPLACE INTO progress (job, text) VALUES (?1, ?2)"),
    ] {
        let mut writes = changes.docs.iter().filter(|write| write.doc == doc).peekable();
        if writes.peek().is_none() {
            continue;
        }
        let mut put = conn.prepare_cached(sql)?;
        for write in writes {
            put.execute(params![id_code(write.job), write.text.as_str()])?;
        }
    }
    let sql = "INSERT OR REPLACE INTO errors (job, text, cut) VALUES (?1, ?2, ?3)";
    for (job, error) in &changes.errors {
        let params = params![id_code(*job), error.as_str(), error.is_cut()];
        conn.prepare_cached(sql)?.execute(params)?;
    }
    Ok(())
}

fn put_attempts(conn: &Connection, changes: &Changes) -> Found<()> {
    for (job, epoch) in &changes.dropped_attempts {
        let sql = "DELETE FROM attempts WHERE job = ?1 AND epoch <= ?2";
        conn.prepare_cached(sql)?.execute([id_code(*job), epoch.get().cast_signed()])?;
    }
    for attempt in &changes.attempts {
        let (job, epoch) = (id_code(attempt.job), attempt.epoch.get());
        let sql = "INSERT OR REPLACE INTO attempts (job, epoch, worker, started_at, ended_at, \
                   outcome, error, error_cut, exit_code, stdout, stdout_cut, stderr, stderr_cut) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        let (error, error_cut) = parts(attempt.error.as_ref());
        let (stdout, stdout_cut) = parts(attempt.stdout.as_ref());
        let (stderr, stderr_cut) = parts(attempt.stderr.as_ref());
        conn.prepare_cached(sql)?.execute(params![
            job,
            epoch.cast_signed(),
            attempt.worker.as_str(),
            attempt.started_at.get(),
            attempt.ended_at.get(),
            position(&AttemptOutcome::ALL, &attempt.outcome),
            error,
            error_cut,
            attempt.exit_code,
            stdout,
            stdout_cut,
            stderr,
            stderr_cut,
        ])?;
    }
    Ok(())
}

fn parts(excerpt: Option<&Excerpt>) -> (Option<&str>, Option<bool>) {
    (excerpt.map(Excerpt::as_str), excerpt.map(Excerpt::is_cut))
}

pub(crate) fn put_keys(conn: &Connection, changes: &Changes) -> Found<()> {
    let sql = "INSERT OR REPLACE INTO keys (key, job, request, created_at, orphan_until) \
               VALUES (?1, ?2, ?3, ?4, ?5)";
    for KeyRecord { key, job, request, created_at, orphan_until } in &changes.keys {
        conn.prepare_cached(sql)?.execute(params![
            key.as_str(),
            id_code(*job),
            request.0.to_le_bytes(),
            created_at.get(),
            orphan_until.map(Wall::get),
        ])?;
    }
    for key in &changes.dropped_keys {
        conn.prepare_cached("DELETE FROM keys WHERE key = ?1")?.execute([key.as_str()])?;
    }
    Ok(())
}

fn add_counts(conn: &Connection, names: &mut Names, deltas: &[CountDelta]) -> Found<()> {
    if deltas.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::with_capacity(deltas.len());
    for CountDelta { queue, kind, by, retrying } in deltas {
        let pair = pair_key(names.ensure_queue(conn, queue)?, names.ensure_kind(conn, kind)?);
        rows.push((pair, by, retrying));
    }
    rows.sort_unstable();
    insert_rows(conn, &COUNTS, &rows, |(pair, by, retrying), row| {
        row.put(params![pair, by[0], by[1], by[2], by[3], by[4], by[5], retrying])
    })?;
    for (pair, by, _) in rows {
        // A row of zeros means the same as none: kinds without jobs leave nothing behind. Jobs that
        // only move from view to view leave no zeros.
        if by.iter().sum::<i64>() < 0 {
            let sql = "DELETE FROM counts WHERE pair = ?1 AND queued = 0 AND scheduled = 0 \
                       AND processing = 0 AND done = 0 AND failed = 0 AND cancelled = 0";
            conn.prepare_cached(sql)?.execute([pair])?;
        }
    }
    Ok(())
}

fn put_workers(conn: &Connection, changes: &Changes, now: Wall) -> Found<()> {
    for id in &changes.removed_workers {
        conn.prepare_cached("DELETE FROM workers WHERE id = ?1")?.execute([id.as_str()])?;
    }
    let sql = "INSERT INTO workers (id, host, pid, kind, started_at, last_seen, demand, slots, \
               presence, instance, version, server) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
               ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid, \
               kind = excluded.kind, last_seen = excluded.last_seen, demand = excluded.demand, \
               slots = excluded.slots, presence = excluded.presence, instance = excluded.instance, \
               version = excluded.version, server = excluded.server";
    for worker in &changes.workers {
        let Worker { id, host, pid, instance, version, server, kind, demand, slots, presence } =
            worker;
        conn.prepare_cached(sql)?.execute(params![
            id.as_str(),
            host.as_ref(),
            pid,
            position(&WorkerKind::ALL, kind),
            now.get(),
            demand.to_string(),
            count(*slots),
            presence.get().cast_signed(),
            instance.as_ref().map(ToString::to_string),
            version.as_ref().map(WorkerVersion::as_str),
            server.as_ref().map(WorkerId::as_str),
        ])?;
    }
    for id in &changes.stopped_workers {
        let sql = "UPDATE workers SET stopping = 1 WHERE id = ?1";
        conn.prepare_cached(sql)?.execute([id.as_str()])?;
    }
    for id in &changes.touched_workers {
        let sql = "UPDATE workers SET last_seen = ?2 WHERE id = ?1";
        conn.prepare_cached(sql)?.execute(params![id.as_str(), now.get()])?;
    }
    if let Some(before) = changes.drop_silent {
        let sql = "DELETE FROM workers WHERE last_seen < ?1";
        conn.prepare_cached(sql)?.execute([before.get()])?;
        let sql = "DELETE FROM markers WHERE at < ?1";
        conn.prepare_cached(sql)?.execute([before.get()])?;
    }
    Ok(())
}

fn put_marker(conn: &Connection, marker: &Marker) -> Found<()> {
    let sql = "INSERT OR REPLACE INTO markers (process, seq, at) VALUES (?1, ?2, ?3)";
    let process = marker.batch.process.0.cast_signed();
    let seq = marker.batch.seq.cast_signed();
    conn.prepare_cached(sql)?.execute(params![process, seq, marker.at.get()])?;
    Ok(())
}

fn length(length: LeaseLength) -> i64 {
    length.get().cast_signed()
}
