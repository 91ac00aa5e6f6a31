//! What a batch did to the rows that it should not have done, or did not do that it should have.

use windlass_core::machine::{Answer, Effect, Input, Request};
use windlass_core::store::{
    Admin, Batch, Changes, ClaimFor, Doc, DocWrite, Heartbeat, Leased, Reader, Settle, Store,
    Taker, WorkerKind, audit,
};
use windlass_core::{
    BatchId, Delay, Demand, EnqueueRefused, Failure, JobId, Millis, Payload, PayloadError, Policy,
    ProcessId, QueueName, Verdict, Wall, When, WorkerId,
};
use windlass_tests::stage::{job, token, worker_named};

use crate::single_job_store::SingleJobStore;
use crate::{detail, row, stage};

fn batch() -> Batch {
    Batch::new(BatchId { process: ProcessId(1), seq: 1 }, Policy::default())
}

fn payload(json: &str) -> Payload {
    Payload::new(json).expect("test payloads are payloads")
}

/// A failure and the deletion of its job shared a batch: the attempt and the error were written
/// for a job that was gone, and stayed for ever. Found by `chaos`.
#[test]
fn a_report_and_a_deletion_in_one_batch_leave_nothing_behind() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    let verdict = Verdict::Fail(Failure::new("no").permanent().into());
    stage.request(Request::Settle(Settle { token: token("1.1"), verdict }));
    let deleted = stage.admin(Admin::Delete(JobId::FIRST));
    stage.settle();
    assert!(matches!(stage.answer(deleted), Some(Answer::Admin(Ok(_)))));
    let dump = stage.store.reader().expect("a reader").dump().expect("it dumps");
    assert_eq!((audit(&dump), dump.attempts), (Vec::new(), Vec::new()));
}

/// The queue of a new job was made before the job was found to be scheduled too far ahead: every
/// refused request could leave one more queue behind, up to their limit. Found by a review.
#[test]
fn a_refused_job_does_not_make_its_queue() {
    let mut stage = stage(0);
    let queue = QueueName::new("ghost").expect("a name");
    let when = When::At(Wall::MAX);
    let mut new = job();
    (new.queue, new.when) = (queue.clone(), when);
    let request = stage.enqueue(new);
    stage.settle();
    let answer = stage.answer(request);
    assert!(matches!(answer, Some(Answer::Enqueued(Err(EnqueueRefused::TooFarAhead { .. })))));
    let found = stage.store.reader().expect("a reader").queue(&queue);
    assert_eq!(found, Ok(None));
}

/// A job was taken for a new one of the batch because its id was not below the first new one. A
/// store that had given out a higher id before, for another process, leased such a job without
/// its payload, so that it was held and never run. Found by a review.
#[test]
fn a_stored_job_with_a_higher_id_than_a_new_one_runs_with_its_own_payload() {
    let mut made = stage(0);
    made.enqueue(job());
    made.settle();
    let mut old = row(&made.store);
    old.id = JobId::new(200).expect("an id");
    old.rank.id = old.id;
    let mut store = SingleJobStore::holding(old, payload("200"));
    store.next_id = JobId::new(100).expect("an id");
    let mut batch = batch();
    let mut new = job();
    new.payload = payload("100");
    batch.enqueues.push(new);
    let worker = WorkerId::new("w").expect("a name");
    let takers = vec![Taker { worker, max: 2, length: None }];
    batch.claims.push(ClaimFor { demand: Demand::ALL, takers });
    let out = store.commit(&batch);
    let run = |leased: &Leased| (leased.job.id.get(), leased.payload.as_str().to_owned());
    let mut runs: Vec<(u64, String)> = out.claims[0].jobs.iter().map(run).collect();
    runs.sort();
    assert_eq!(runs, [(100, "100".to_owned()), (200, "200".to_owned())]);
}

/// A job that its own batch had made ready was too large for what was left of the claim's bytes.
/// Its payload was asked for again and again, and the commit never ended. Found by a differential
/// test of redb.
#[test]
fn a_promoted_job_that_does_not_fit_into_the_claim_is_claimed_by_the_next_batch() {
    let mut stage = stage(3);
    stage.settle();
    let large = payload(&format!("\"{}\"", "x".repeat(12 * 1024 * 1024)));
    for _ in 0..3 {
        let mut new = job();
        (new.payload, new.when) = (large.clone(), When::After(Delay::new(1_000).expect("a delay")));
        stage.enqueue(new);
    }
    stage.settle();
    stage.pass(Millis::seconds(2));
    assert_eq!(stage.started().len(), 3);
}

/// Two progress notes of one run shared a batch, and both were written, though each row of a
/// batch is written once: a store that inserts them in one statement could fail on it, again at
/// every try. Found by a review.
#[test]
fn two_progress_notes_in_one_batch_write_one_document() {
    let mut made = stage(1);
    made.enqueue(job());
    made.settle();
    let mut store = SingleJobStore::holding(row(&made.store), Payload::null());
    let mut batch = batch();
    for note in ["10", "20"] {
        let progress = Some(payload(note));
        batch.heartbeats.push(Heartbeat { token: token("1.1"), extend: None, progress });
    }
    store.commit(&batch);
    let last = DocWrite { job: JobId::FIRST, doc: Doc::Progress, text: payload("20") };
    assert_eq!(store.written.map(|Changes { docs, .. }| docs), Some(vec![last]));
}

/// Workers that were seen were written before those that had gone were removed: one that left and
/// came back within a batch was not known any more. Found by a review.
#[test]
fn a_worker_that_goes_and_comes_back_in_one_batch_starts_without_its_mark() {
    let mut stage = stage(0);
    let worker = worker_named("w", WorkerKind::Remote);
    stage.admin(Admin::SeeWorker(worker.clone()));
    stage.settle();
    stage.pass(Millis::seconds(5));
    stage.admin(Admin::RemoveWorker(worker.id.clone()));
    stage.admin(Admin::SeeWorker(worker.clone()));
    stage.settle();
    let rows = stage.store.reader().expect("a reader").workers().expect("it reads");
    let rows: Vec<_> = rows.into_iter().map(|row| (row.worker, row.started_at)).collect();
    assert_eq!(rows, [(worker, stage.now.wall)]);
}

/// A job was given back and claimed again within a batch. It ended in the state in which it had
/// begun, so observers got no event for the end of one run and the start of the next. Found
/// by a review.
#[test]
fn a_job_that_changes_its_holder_within_a_batch_is_reported_as_a_change() {
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    stage.take_effects();
    stage.input(Input::Stopped { token: token("1.1"), reason: None });
    stage.settle();
    assert_eq!(stage.started(), [token("1.2")]);
    let is_of_first = |effect: &Effect| match effect {
        Effect::Changed { jobs, .. } => jobs.iter().any(|change| change.id == JobId::FIRST),
        _ => false,
    };
    assert!(stage.effects.iter().any(is_of_first), "{}", stage.log());
}

/// The output of a program held a NUL, which a store like PostgreSQL refuses in a text. The report
/// failed at every try, and took every batch that it was part of with it. Found by a review.
#[test]
fn a_nul_never_comes_to_a_store() {
    assert_eq!(Payload::new("\"out\0put\""), Err(PayloadError::Nul { at: 4 }));
    let mut stage = stage(1);
    stage.enqueue(job());
    stage.settle();
    let verdict = Verdict::Fail(Failure::new("out\0put").permanent().into());
    stage.input(Input::Report { token: token("1.1"), verdict });
    stage.settle();
    let error = detail(&stage.store).last_error.expect("it failed");
    assert_eq!(error.as_str(), "out\u{1a}put");
}
