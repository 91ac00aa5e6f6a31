//! Fixture of the invariants' tests: a ledger with jobs, and a commit to check.

use std::collections::BTreeSet;

use windlass_core::store::{Batch, Dump, JobDetail, Outcomes};
use windlass_core::{
    BatchId, Counts, Epoch, Job, JobId, Kind, Lease, LeaseLength, LeaseToken, Millis, NewJob,
    Payload, Policy, ProcessId, Queue, QueueName, QueueRow, QueueSettings, State, Wall, WorkerId,
};

use super::{Quiet, Seen, first_violation};
use crate::ledger::{Commit, Decided, IdleReaps, JobEvent, Ledger, Story};

/// The wall clock of every scene.
pub(super) const NOW: i64 = 1_000;

pub(super) struct Scene {
    pub(super) ledger: Ledger,
    pub(super) batch: Batch,
    pub(super) out: Outcomes,
    pub(super) queues: Vec<QueueRow>,
    pub(super) at: u64,
    pub(super) step_seen: Option<u64>,
    pub(super) idle_reaps: IdleReaps,
}

impl Scene {
    pub(super) fn new() -> Self {
        let id = BatchId { process: ProcessId(1), seq: 1 };
        let out = Outcomes { now: Wall::new(NOW), ..Outcomes::default() };
        let ledger = Ledger::default();
        let batch = Batch::new(id, Policy::default());
        Self {
            ledger,
            batch,
            out,
            queues: Vec::new(),
            at: 100_000,
            step_seen: None,
            idle_reaps: IdleReaps::default(),
        }
    }

    /// Puts a job into the ledger, as if a commit had stored it.
    pub(super) fn store(&mut self, detail: JobDetail) {
        let id = detail.job.id;
        let held = detail.job.lease().map(|lease| lease.worker.clone());
        let (epoch, claims) = (detail.job.epoch, detail.job.attempts);
        let events = vec![JobEvent::Enqueued];
        let story = Story { id, before: None, after: Some(detail), events };
        self.ledger.sent.entry("1".into()).or_default().delivered += 2;
        let (batch, out) = (self.batch.clone(), self.out.clone());
        self.ledger.take_in(&commit_of(&batch, &out, vec![story], Vec::new(), self.at));
        let life = self.ledger.life_mut(id).expect("it was stored above");
        life.moved = 0;
        let life = self.ledger.life_mut(id).expect("it was stored above");
        (life.epoch, life.claims, life.heartbeat_at) = (epoch, claims, self.at);
        assert_eq!(held.is_some(), claims > 0);
        self.queues = rows(&self.ledger);
    }

    pub(super) fn story(&self, id: u64, after: Option<JobDetail>, events: Vec<JobEvent>) -> Story {
        let id = JobId::new(id).expect("an id");
        Story { id, before: self.ledger.row(id).cloned(), after, events }
    }

    fn commit(&self, stories: Vec<Story>) -> Commit<'_> {
        let commit = commit_of(&self.batch, &self.out, stories, self.queues.clone(), self.at);
        let decided = Decided { step_seen: self.step_seen, ..commit.decided };
        Commit { idle_reaps: self.idle_reaps, decided, ..commit }
    }

    pub(super) fn dump(&self) -> Dump {
        Dump {
            next_id: JobId::LAST,
            jobs: self.ledger.details().cloned().collect(),
            queues: self.queues.clone(),
            keys: Vec::new(),
            attempts: Vec::new(),
            workers: Vec::new(),
            settings: Vec::new(),
            markers: Vec::new(),
            figures: Vec::new(),
            groups: Vec::new(),
            bulk: Vec::new(),
        }
    }

    /// Whether the first violation is of this rule.
    pub(super) fn catches(&self, rule: &str, seen: &Seen<'_>) -> bool {
        let found = first_violation(&self.ledger, seen);
        found.is_some_and(|found| found.rule.starts_with(&format!("{rule} ")))
    }

    pub(super) fn allows(&self, seen: &Seen<'_>) -> bool {
        first_violation(&self.ledger, seen).is_none()
    }

    pub(super) fn catches_commit(&self, rule: &str, story: Story) -> bool {
        self.catches(rule, &Seen::Commit(&self.commit(vec![story])))
    }

    pub(super) fn allows_commit(&self, story: Story) -> bool {
        self.allows(&Seen::Commit(&self.commit(vec![story])))
    }

    /// Whether this rule finds a violation, whatever others find before it.
    pub(super) fn breaks(&self, rule: &str, story: Story) -> bool {
        let all = super::INVARIANTS;
        let rule = all.iter().find(|one| one.name.starts_with(&format!("{rule} ")));
        let rule = rule.expect("a rule of the table");
        (rule.check)(&self.ledger, &Seen::Commit(&self.commit(vec![story]))).is_some()
    }

    pub(super) fn breaks_not(&self, rule: &str, story: Story) -> bool {
        !self.breaks(rule, story)
    }

    /// Whether this rule finds a violation once the commit is in the ledger.
    pub(super) fn noted_breaks(&self, rule: &str, story: Story) -> bool {
        let all = super::INVARIANTS;
        let rule = all.iter().find(|one| one.name.starts_with(&format!("{rule} ")));
        let rule = rule.expect("a rule of the table");
        (rule.check)(&self.ledger, &Seen::Noted(&self.commit(vec![story]))).is_some()
    }

    pub(super) fn noted_breaks_not(&self, rule: &str, story: Story) -> bool {
        !self.noted_breaks(rule, story)
    }

    pub(super) fn catches_noted(&self, rule: &str) -> bool {
        self.catches(rule, &Seen::Noted(&self.commit(vec![])))
    }

    pub(super) fn allows_noted(&self) -> bool {
        self.allows(&Seen::Noted(&self.commit(vec![])))
    }
}

fn commit_of<'a>(
    batch: &'a Batch,
    out: &'a Outcomes,
    stories: Vec<Story>,
    queues: Vec<QueueRow>,
    at: u64,
) -> Commit<'a> {
    Commit {
        at,
        process: ProcessId(1),
        decided: Decided { at, wall: out.now, step_seen: None },
        idle_reaps: IdleReaps::default(),
        number: 1,
        seen: 0,
        asked: at,
        read: at,
        spread: Millis::default(),
        skipped: Vec::new(),
        set_back: None,
        batch,
        out,
        stories,
        queues,
    }
}

fn rows(ledger: &Ledger) -> Vec<QueueRow> {
    let mut row = QueueRow::empty(Queue::new(QueueName::default()));
    let mut counts = Counts::default();
    for detail in ledger.details() {
        counts.add((&detail.job).into());
    }
    row.kinds.push((Kind::default(), counts));
    vec![row]
}

pub(super) fn new_job() -> NewJob {
    NewJob::new(Kind::default(), Payload::new("1").expect("a payload"))
}

fn job(id: u64) -> Job {
    let new = new_job();
    let terms = new.terms(&QueueSettings::default(), &Policy::default());
    let id = JobId::new(id).expect("an id");
    new.admit(id, terms, Wall::new(0)).expect("it is admitted")
}

/// A queued job.
pub(super) fn detail(id: u64) -> JobDetail {
    let (job, payload) = (job(id), new_job().payload);
    JobDetail { job, payload, result: None, progress: None, last_error: None }
}

/// A job that worker `one` holds, for ten seconds that end at `until`.
pub(super) fn leased(id: u64, epoch: u64, until: i64) -> JobDetail {
    let mut leased = detail(id);
    let length = LeaseLength::new(10_000).expect("a length");
    let lease = Lease { worker: worker("one"), until: Wall::new(until), length };
    leased.job.state = State::Processing(lease);
    (leased.job.epoch, leased.job.attempts) = (Epoch::new(epoch), 1);
    leased
}

pub(super) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a name")
}

/// An idle machine with one free slot.
pub(super) fn quiet<'a>(worker: &'a WorkerId, none: &'a BTreeSet<LeaseToken>) -> Quiet<'a> {
    Quiet {
        worker,
        slots: 1,
        busy: 0,
        alive: none,
        leases: none,
        settled: true,
        wakeup: None,
        sleeps_ms: 0,
        good: true,
        has_claimable_job: false,
        unclaimed_ms: 0,
        unclaimed_limit_ms: 1_000,
    }
}
