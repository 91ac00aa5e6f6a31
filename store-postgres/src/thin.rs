//! The thin rows of jobs, each in one of `ready`, `scheduled`, `leased` and `done`: a job moves by
//! a delete and an insert.

use windlass_core::store::{Changes, Moved};
use windlass_core::{Job, View, Wall};

use crate::error::TxError;
use crate::names::Names;
use crate::rows::{count, id_code, last_verdict_code, run_at_code, view_code};
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

/// The rows of one table that a batch deletes, and the sums by which they are known to be as they
/// were read: an epoch only grows, a run keeps it and changes the instant, and finished jobs of all
/// views share a table.
#[derive(Default)]
struct Deleted {
    ids: Vec<i64>,
    epochs: i64,
    instants: i128,
    views: i64,
}

/// Deletes the thin rows of jobs that move or go. Each must be as it was read.
pub(crate) fn delete(flight: &mut Flight, changes: &Changes) {
    let mut tables: [Deleted; 4] = Default::default();
    for Moved { from, job } in changes.updates.iter().chain(&changes.removes) {
        let rows = &mut tables[table(from.view)];
        rows.ids.push(id_code(job.id));
        rows.epochs = rows.epochs.wrapping_add(from.epoch.get().cast_signed());
        rows.instants += i128::from(from.at.get());
        rows.views += i64::from(view_code(from.view));
    }
    for (at, rows) in tables.into_iter().enumerate().filter(|(_, rows)| !rows.ids.is_empty()) {
        let number = count(rows.ids.len());
        let instants = rows.instants.to_string();
        flight.add(DELETE_THIN[at], params![rows.ids, number, rows.epochs, instants, rows.views]);
    }
}

macro_rules! delete_thin {
    ($table:literal, $at:literal, $view:literal) => {
        concat!(
            "WITH gone AS (DELETE FROM ",
            $table,
            " WHERE id = ANY($1::bigint[]) RETURNING epoch, ",
            $at,
            " AS at, ",
            $view,
            " AS view) SELECT 1 / (count(*) = $2::bigint AND sum(epoch) = $3::bigint \
             AND sum(at) = $4::text::numeric AND sum(view) = $5::bigint)::integer FROM gone"
        )
    };
}

const DELETE_THIN: [&str; 4] = [
    delete_thin!("ready", "due", "0"),
    delete_thin!("scheduled", "run_at", "1"),
    delete_thin!("leased", "lease_until", "2"),
    delete_thin!("done", "finished_at", "view"),
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
                column(&jobs, |job| last_verdict_code(&job.state)),
            ]);
        }
        if at == 3 {
            let group = |job: &Job| job.state.group().map(|group| group.0.to_vec());
            params.extend(params![column(&jobs, group)]);
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
        "finished_at, run_at, view, queue, kind, spent, error_group",
        "$10::bigint[], $11::bigint[], $12::smallint[], $13::integer[], $14::integer[], \
         $15::smallint[], $16::bytea[]"
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::store::{Admin, Batch, Store};
    use windlass_core::{
        BatchId, Epoch, IndexKey, JobId, Kind, NewJob, Payload, Policy, ProcessId,
    };
    use windlass_tests::postgres_server::PostgresServer;

    use crate::store::PgStore;

    #[test]
    fn a_row_is_not_deleted_unless_its_view_epoch_and_instant_are_those_that_were_read() {
        let Some(server) = PostgresServer::shared() else { return };
        let url = server.url(&server.new_schema());
        let mut store = PgStore::connect(&url).expect("it opens");
        let mut seq = 0;
        let mut commit = |fill: &dyn Fn(&mut Batch)| {
            seq += 1;
            let id = BatchId { process: ProcessId(1), seq };
            let mut batch = Batch::new(id, Policy::default());
            fill(&mut batch);
            store.commit(Wall::new(0), &batch).expect("it commits")
        };
        let new = NewJob::new(Kind::default(), Payload::null());
        let out = commit(&|batch| batch.enqueues = vec![new.clone(); 2]);
        let ids: Vec<JobId> =
            out.enqueues.iter().map(|one| one.as_ref().expect("it is taken").id).collect();
        commit(&|batch| batch.admin.push(Admin::Cancel(ids[1])));
        let mut reader = store.pool.reader();
        let mut job = |id| {
            let found = reader.read(|reading| {
                let sql = concat!(
                    crate::rows::select_ready!(),
                    "WHERE t.id = $1 UNION ALL ",
                    crate::rows::select_done!(),
                    "WHERE t.id = $1"
                );
                crate::rows::jobs(reading.names, &reading.session.query(sql, params![id_code(id)])?)
            });
            found.expect("it can be read").remove(0)
        };
        let mut session = store.opener.session().expect("it connects");
        for id in ids {
            let job = job(id);
            let read = job.index_key();
            let other = |view| match view {
                View::Cancelled => View::Done,
                _ => View::Scheduled,
            };
            let mut deletes = |from: IndexKey| {
                let moved = Moved { from, job: job.clone() };
                let changes = Changes { removes: vec![moved], ..Changes::default() };
                let mut flight = Flight::default();
                flight.add("BEGIN", vec![]);
                delete(&mut flight, &changes);
                let deleted = session.fly(flight, None).is_ok();
                session.roll_back().expect("it is connected");
                deleted
            };
            assert!(deletes(read));
            assert!(!deletes(IndexKey { epoch: Epoch::new(read.epoch.get() + 1), ..read }));
            assert!(!deletes(IndexKey { at: Wall::new(read.at.get() + 1), ..read }));
            assert!(!deletes(IndexKey { view: other(read.view), ..read }));
        }
    }
}
