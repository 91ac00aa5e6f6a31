//! A story that has every kind of commit in it. Ids and epochs are known beforehand, so that its
//! batches are plain data.

use windlass_core::store::{
    Admin, Batch, CommitError, Heartbeat, Outcomes, Purge, Settle, SlotFigures, Store,
};
use windlass_core::{
    BatchId, Epoch, FigureSet, Figures, JobId, LeaseToken, Millis, NewJob, Policy, ProcessId, Span,
    Wall, When,
};
use windlass_store_sqlite::SqliteStore;
use windlass_tests::fixture::{
    START, announced, claim_for, complete, complete_with, delay, fail, fail_for_good, keep_all_for,
    main_work, queue, reap_up_to, text, work, work_keyed,
};

/// What happens to a store.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// A batch is committed at this instant.
    Commit { name: &'static str, now: Wall, batch: Box<Batch> },
    /// The store is reopened, with its whole WAL checkpointed.
    Reopen,
}

impl Act {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Commit { name, .. } => name,
            Self::Reopen => "reopen",
        }
    }
}

/// The whole story.
pub(crate) fn story() -> Vec<Act> {
    let reaped = START.plus(Millis::hours(1));
    let later = reaped.plus(Millis::minutes(1));
    let mut story = short_story();
    story.extend([
        commit(11, "reap", reaped, |batch| batch.reap = Some(reap_up_to(10))),
        commit(12, "claim", later, |batch| {
            batch.promote = Some(10);
            batch.claims.push(claim_for(main_work(), "w3", 6));
        }),
        commit(13, "heartbeat", later, |batch| {
            let progress = Some(text(r#"{"half":true}"#));
            batch.heartbeats.push(Heartbeat { token: token(3, 2), extend: None, progress });
            let mut figures = FigureSet::default();
            figures.count(&queue("main"), &Figures { done: 7, ..Figures::default() });
            batch.figures.push(SlotFigures { slot: Span::Live.slot(later), figures });
        }),
        Act::Reopen,
        commit(14, "settle", later, |batch| {
            batch.settles.push(Settle { token: token(3, 2), verdict: fail_for_good("no") });
            batch.settles.push(Settle { token: token(4, 2), verdict: complete() });
        }),
        commit(15, "purge", later.plus(Millis::hours(2)), |batch| {
            batch.purge = Some(Purge { retention: keep_all_for(Millis::hours(2)), limit: 10 });
        }),
        commit(16, "enqueue", later, |batch| {
            batch.enqueues.extend([work_keyed("a"), work_keyed("c"), large(20_000)]);
        }),
    ]);
    story
}

/// The beginning of it: an enqueue, a claim, a settlement, and all of it again behind a reopening.
pub(crate) fn short_story() -> Vec<Act> {
    vec![
        commit(1, "enqueue", START, |batch| {
            batch.admin.push(Admin::SeeWorker(announced("w1")));
            batch.enqueues.extend([work_keyed("a"), work(), large(9_000), work_keyed("b")]);
            batch.enqueues.push(NewJob { when: When::After(delay(Millis::hours(1))), ..work() });
        }),
        commit(2, "claim", START, |batch| {
            batch.claims.push(claim_for(main_work(), "w1", 3));
        }),
        commit(3, "settle", START, |batch| {
            let result = format!("\"{}\"", "r".repeat(5_000));
            batch.settles.push(Settle { token: token(1, 1), verdict: complete_with(&result) });
            batch.settles.push(Settle { token: token(2, 1), verdict: fail("not yet") });
        }),
        Act::Reopen,
        commit(4, "enqueue", START, |batch| batch.enqueues.extend([work(), large(4_000)])),
        commit(5, "claim", START, |batch| {
            batch.claims.push(claim_for(main_work(), "w2", 1));
        }),
    ]
}

fn commit(seq: u64, name: &'static str, now: Wall, fill: impl FnOnce(&mut Batch)) -> Act {
    let mut batch = Batch::new(BatchId { process: ProcessId(1), seq }, Policy::default());
    fill(&mut batch);
    Act::Commit { name, now, batch: Box::new(batch) }
}

fn token(job: u64, epoch: u64) -> LeaseToken {
    let job = JobId::new(job).expect("ids begin at one");
    LeaseToken { job, epoch: Epoch::new(epoch) }
}

/// A job whose payload fills several pages.
pub(crate) fn large(bytes: usize) -> NewJob {
    NewJob { payload: text(&format!("\"{}\"", "p".repeat(bytes))), ..work() }
}

/// An enqueue of this number of bytes.
pub(crate) fn fill(seq: u64, bytes: usize) -> Act {
    commit(seq, "fill", START, |batch| batch.enqueues.push(large(bytes)))
}

/// Lets an act happen to a store.
pub(crate) fn perform(store: &mut SqliteStore, act: &Act) -> Result<(), CommitError> {
    match act {
        Act::Commit { now, batch, .. } => store.commit(*now, batch).map(|out| expect(batch, &out)),
        Act::Reopen => {
            let failed = |error| match error {
                windlass_core::store::StoreError::Corrupt(cause) => CommitError::Corrupt(cause),
                windlass_core::store::StoreError::Busy(cause)
                | windlass_core::store::StoreError::Fatal(cause) => {
                    CommitError::Fatal { cause, outcomes: None }
                }
            };
            store.reopen().map_err(failed)
        }
    }
}

/// Every command of the story does something.
#[track_caller]
fn expect(batch: &Batch, out: &Outcomes) {
    let refused = out.settles.iter().filter(|settled| settled.is_err()).count()
        + out.heartbeats.iter().filter(|answered| answered.is_err()).count()
        + out.enqueues.iter().filter(|receipt| receipt.is_err()).count();
    assert!(out.wrote && refused == 0, "the story goes on: {batch:?} {out:?}");
    let wanted: usize = batch.claims.iter().flat_map(|claim| &claim.takers).map(|t| t.max).sum();
    let got: usize = out.claims.iter().map(|claimed| claimed.jobs.len()).sum();
    assert_eq!(got, wanted, "every claim of the story finds its jobs: {batch:?}");
}
