//! The thin rows of jobs, each in one of `ready`, `scheduled`, `leased` and `done`: a job moves by
//! a delete and an insert.

use windlass_core::store::{Changes, Moved};
use windlass_core::{Job, View, Wall};

use crate::error::TxError;
use crate::names::Names;
use crate::rows::{count, id_code, run_at_code, spent_code, view_code};
use crate::session::{Flight, Found, Param, params};

/// The table of a view: ready, scheduled, leased, done.
fn table(view: View) -> usize {
    match view {
        View::Queued => 0,
        View::Scheduled => 1,
        View::Processing => 2,
        View::Done | View::Failed | View::Cancelled => 3,
    }
}

/// Deletes the thin rows of jobs that move or go. Each must be as it was read: an epoch only grows,
/// so the sum of them tells.
pub(crate) fn delete(flight: &mut Flight, changes: &Changes) {
    let mut tables: [Vec<i64>; 4] = Default::default();
    let mut epochs = [0_i64; 4];
    for Moved { from, job } in changes.updates.iter().chain(&changes.removes) {
        let at = table(from.view);
        tables[at].push(id_code(job.id));
        epochs[at] = epochs[at].wrapping_add(from.epoch.get().cast_signed());
    }
    for (at, ids) in tables.into_iter().enumerate().filter(|(_, ids)| !ids.is_empty()) {
        let rows = count(ids.len());
        flight.add(DELETE_THIN[at], params![ids, rows, epochs[at]]);
    }
}

macro_rules! delete_thin {
    ($table:literal) => {
        concat!(
            "WITH gone AS (DELETE FROM ",
            $table,
            " WHERE id = ANY($1::bigint[]) RETURNING epoch) SELECT 1 / (count(*) = $2::bigint \
             AND sum(epoch) = $3::bigint)::integer FROM gone"
        )
    };
}

const DELETE_THIN: [&str; 4] = [
    delete_thin!("ready"),
    delete_thin!("scheduled"),
    delete_thin!("leased"),
    delete_thin!("done"),
];

/// Inserts the thin rows of new and of moved jobs.
pub(crate) fn insert(flight: &mut Flight, names: &Names, changes: &Changes) -> Found<()> {
    let moved = changes.updates.iter().map(|moved| &moved.job);
    let mut tables: [Vec<&Job>; 4] = Default::default();
    for job in changes.inserts.iter().chain(moved) {
        tables[table(job.state.view())].push(job);
    }
    for (at, jobs) in tables.into_iter().enumerate().filter(|(_, jobs)| !jobs.is_empty()) {
        let mut params = common(&jobs);
        match at {
            0 => params.extend(params![column(&jobs, run_at_code)]),
            1 => params.extend(params![column(&jobs, |job| job.run_at.get())]),
            2 => params.extend(leases(&jobs)?),
            _ => params.extend(params![
                column(&jobs, |job| job.index_key().at.get()),
                column(&jobs, run_at_code),
                column(&jobs, |job| view_code(job.state.view())),
            ]),
        }
        if at != 2 {
            let queue = |job: &&Job| names.queue_id(&job.queue).ok_or(TxError::StaleNames);
            let kind = |job: &&Job| names.kind_id(&job.kind).ok_or(TxError::StaleNames);
            params.extend(params![
                jobs.iter().map(queue).collect::<Found<Vec<i32>>>()?,
                jobs.iter().map(kind).collect::<Found<Vec<i32>>>()?,
                column(&jobs, |job| spent_code(&job.state)),
            ]);
        }
        flight.add(INSERT[at], params);
    }
    Ok(())
}

/// The columns that all thin rows have.
fn common(jobs: &[&Job]) -> Vec<Param> {
    params![
        column(jobs, |job| id_code(job.id)),
        column(jobs, |job| job.rank.turn.cast_signed()),
        column(jobs, |job| job.rank.due.get()),
        column(jobs, |job| job.epoch.get().cast_signed()),
        column(jobs, |job| job.updated_at.get()),
        column(jobs, |job| job.started_at.map(Wall::get)),
        column(jobs, |job| job.attempts.cast_signed()),
        column(jobs, |job| job.generation.cast_signed()),
        column(jobs, |job| job.rank.class),
    ]
}

fn leases(jobs: &[&Job]) -> Found<Vec<Param>> {
    let (mut until, mut lengths, mut workers) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        let lease = job.lease();
        let lease = lease.ok_or_else(|| TxError::BadRow(format!("job {} has no lease", job.id)))?;
        until.push(lease.until.get());
        lengths.push(lease.length.get().cast_signed());
        workers.push(lease.worker.as_str().to_owned());
    }
    Ok(params![column(jobs, run_at_code), until, lengths, workers])
}

fn column<T>(jobs: &[&Job], value: impl Fn(&Job) -> T) -> Vec<T> {
    jobs.iter().map(|job| value(job)).collect()
}

macro_rules! insert_thin {
    ($table:literal, $columns:literal, $types:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (id, turn, due, epoch, updated_at, started_at, attempts, generation, class, ",
            $columns,
            ") SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], \
             $5::bigint[], $6::bigint[], $7::integer[], $8::integer[], $9::smallint[], ",
            $types,
            ")"
        )
    };
}

const INSERT: [&str; 4] = [
    insert_thin!(
        "ready",
        "run_at, queue, kind, spent",
        "$10::bigint[], $11::integer[], $12::integer[], $13::smallint[]"
    ),
    insert_thin!(
        "scheduled",
        "run_at, queue, kind, spent",
        "$10::bigint[], $11::integer[], $12::integer[], $13::smallint[]"
    ),
    insert_thin!(
        "leased",
        "run_at, lease_until, lease_length, worker",
        "$10::bigint[], $11::bigint[], $12::bigint[], $13::text[]"
    ),
    insert_thin!(
        "done",
        "finished_at, run_at, view, queue, kind, spent",
        "$10::bigint[], $11::bigint[], $12::smallint[], $13::integer[], $14::integer[], \
         $15::smallint[]"
    ),
];
