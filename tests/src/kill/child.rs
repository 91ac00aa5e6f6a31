//! What a child does: it enqueues, claims, settles and reaps, a batch at a time, and says what was
//! acknowledged, in one line per batch, once it was.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use windlass_core::store::{Batch, CommitError, Outcomes, Settle, Store};
use windlass_core::{BatchId, LeaseToken, Millis, NewJob, Policy, ProcessId, Verdict, Wall};

use crate::fixture::{START, claim_for, complete, fail, main_work, reap_up_to, text, work};
use crate::on_disk::OnDisk;

/// The variable with the task of a child.
pub(super) const ARGUMENTS: &str = "WINDLASS_KILL_CHILD";

/// What a child is to do.
#[derive(Debug)]
pub struct Task {
    /// Its number, which no other child has.
    pub process: u64,
    /// The hour at which its clock begins: leases of an hour before have run out.
    pub hour: u64,
    /// How many batches, unless it is killed.
    pub batches: u64,
    /// The file of the store.
    pub path: PathBuf,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, hour, batches, path } = self;
        write!(f, "{process} {hour} {batches} {}", path.display())
    }
}

impl Task {
    pub(super) fn parse(text: &str) -> Self {
        let parts: Vec<&str> = text.splitn(4, ' ').collect();
        let [process, hour, batches, path] = parts[..] else { panic!("no task: {text}") };
        let number = |text: &str| text.parse().expect("the parent gives numbers");
        let (process, hour) = (number(process), number(hour));
        Self { process, hour, batches: number(batches), path: path.into() }
    }
}

/// Numbers from a seed (splitmix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Prints a line that the parent reads.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let said = writeln!(out, "{line}").and_then(|()| out.flush());
    said.expect("the parent listens as long as it lives");
}

/// Does a task, and tells `say` of every acknowledgement.
pub(super) fn run<D: OnDisk>(task: &Task, mut say: impl FnMut(&str)) {
    let mut store = D::open(&task.path);
    let mut rng = Rng(task.process);
    let mut held: Vec<LeaseToken> = Vec::new();
    let begin = START.plus(Millis::hours(task.hour));
    for seq in 1..=task.batches {
        let now = begin.plus(Millis::seconds(seq));
        let id = BatchId { process: ProcessId(task.process), seq };
        let batch = batch(id, &mut rng, &mut held);
        let out = commit(&mut store, now, &batch);
        held.extend(out.claims.iter().flat_map(|claimed| &claimed.jobs).map(|l| l.job.token()));
        say(&acknowledgement(&batch, &out));
    }
}

fn batch(id: BatchId, rng: &mut Rng, held: &mut Vec<LeaseToken>) -> Batch {
    let mut batch = Batch::new(id, Policy::default());
    let settled = usize::try_from(rng.below(4)).unwrap_or(0).min(held.len());
    for token in held.drain(..settled) {
        let verdict = if rng.below(4) == 0 { fail("again") } else { complete() };
        batch.settles.push(Settle { token, verdict });
    }
    let count = 1 + rng.below(5);
    for number in 0..count {
        let name = format!("\"{}.{}.{number}.{count}\"", id.process.0, id.seq);
        batch.enqueues.push(NewJob { payload: text(&name), ..work() });
    }
    if rng.below(3) == 0 {
        batch.reap = Some(reap_up_to(20));
    }
    batch.promote = Some(20);
    let worker = format!("w{}", id.process.0);
    let most = usize::try_from(1 + rng.below(3)).unwrap_or(1);
    batch.claims.push(claim_for(main_work(), &worker, most));
    batch
}

fn commit(store: &mut impl Store, now: Wall, batch: &Batch) -> Outcomes {
    loop {
        match store.commit(now, batch) {
            Ok(out) => return out,
            // Another process held the lock for too long.
            Err(CommitError::NotCommitted(_)) => {}
            Err(error) => panic!("a healthy disk gives no such error: {error}"),
        }
    }
}

/// What was done, in words that `promises.rs` reads.
fn acknowledgement(batch: &Batch, out: &Outcomes) -> String {
    let BatchId { process, seq } = batch.id;
    let mut words = vec![format!("ack {} {seq}", process.0)];
    for (new, receipt) in batch.enqueues.iter().zip(&out.enqueues) {
        let id = receipt.as_ref().expect("nothing is refused").id;
        words.push(format!("enqueued {id} {}", new.payload.as_str()));
    }
    for leased in out.claims.iter().flat_map(|claimed| &claimed.jobs) {
        words.push(format!("claimed {} {}", leased.job.id, leased.job.epoch));
    }
    for (settle, settled) in batch.settles.iter().zip(&out.settles) {
        let done = settled.is_ok() && matches!(settle.verdict, Verdict::Complete { .. });
        if done {
            words.push(format!("done {} {}", settle.token.job, settle.token.epoch));
        }
    }
    words.join(" ")
}
