//! The ledger: the history of every job, derived from the commits that took place. It is kept
//! beside the store and by other means, so that the two can be compared.

mod story;

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::store::{Admin, AdminDone, Batch, JobDetail, Outcomes};
use windlass_core::{
    Counts, Epoch, Gate, IdempotencyKey, Job, JobId, Kind, LeaseToken, Millis, Payload, ProcessId,
    Queue, QueueName, QueueRow, Rank, State, Tats, Usage, Wall, WorkerId,
};

pub use story::{JobEvent, Story, VerdictKind, derive};

/// The life of a job.
#[derive(Debug, Clone)]
pub struct Life {
    /// Its row and documents; `None` once it was removed.
    pub detail: Option<JobDetail>,
    /// The payload it was enqueued with.
    pub payload: Payload,
    /// The highest epoch it was claimed with.
    pub epoch: Epoch,
    /// Claims in this generation.
    pub claims: u32,
    /// Attempts given back in this generation.
    pub given_back: u32,
    /// Final verdicts in this generation.
    pub verdicts: u32,
    /// The accepted reports, by epoch.
    pub reports: Vec<(Epoch, VerdictKind)>,
    /// The number of the commit that last changed its row.
    pub moved: u64,
    /// When the commit that changed it read the clock, in true time.
    pub read: u64,
    /// End of its previous lease, in true time.
    pub lease_ended: u64,
    /// When it was last claimed, in true time.
    pub claimed: u64,
    /// When the last heartbeat or claim of its holder was stored, in true time.
    pub heartbeat_at: u64,
    /// The same, as the commit read the wall clock.
    pub heartbeat_wall: Wall,
    /// Whether the clock was set back between that reading and the commit: then the lease ends by
    /// the clock as it was, and a pass over all leases may have gone by before it was stored.
    pub set_back_in_flight: bool,
    /// Whether it was ever cancelled.
    pub cancelled: bool,
    /// Number of starts of its handler.
    pub executions: u32,
    /// Claims in all generations.
    pub all_claims: u32,
}

/// Consecutive reaping commits of one process that have written nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdleReaps {
    /// Number of these commits.
    pub commits: u32,
    /// The most leases there were at one of them.
    pub leases: usize,
}

/// The moment at which everything in a batch but its claims was decided: with the first answer, or
/// with the one that brings the keys of jobs to be removed. Claims may wait for further answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Decided {
    /// In true time.
    pub at: u64,
    /// Reading of the store's clock.
    pub wall: Wall,
    /// When the process could last see a step of the wall clock, in true time: until it made the
    /// batch, or by the clock that was read here.
    pub step_seen: Option<u64>,
}

/// A commit that took place.
#[derive(Debug)]
pub struct Commit<'a> {
    /// In true time.
    pub at: u64,
    /// The process that made it.
    pub process: ProcessId,
    /// When everything but its claims was decided.
    pub decided: Decided,
    /// Consecutive reaping commits that have written nothing, this one included.
    pub idle_reaps: IdleReaps,
    /// Its number: one more than the commits before it.
    pub number: u64,
    /// Number of commits at its first answer.
    pub seen: u64,
    /// When that was, in true time.
    pub asked: u64,
    /// When it read its instant, in true time.
    pub read: u64,
    /// Time between the first and the last reading of the clock.
    pub spread: Millis,
    /// Jobs that it skipped because other transactions held them.
    pub skipped: Vec<JobId>,
    /// When that clock was last set back, in true time.
    pub set_back: Option<u64>,
    /// The commands of the commit.
    pub batch: &'a Batch,
    /// The result of the batch.
    pub out: &'a Outcomes,
    /// Changes of each job.
    pub stories: Vec<Story>,
    /// The queues with their counters, as the store has them now.
    pub queues: Vec<QueueRow>,
}

/// A key and the job it was last used for.
#[derive(Debug, Clone)]
pub struct KeyLife {
    /// The id of the job.
    pub job: JobId,
    /// When the job was stored, by the store's clock.
    pub created_at: Wall,
}

/// Requests to enqueue one payload, which no other job has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    /// Number of deliveries to a machine, without those that were answered as not stored.
    pub delivered: u32,
    /// Number of jobs that were stored for it.
    pub stored: u32,
    /// Whether a client got an answer that it is stored.
    pub acknowledged: bool,
}

/// The history of every job.
#[derive(Debug, Default)]
pub struct Ledger {
    lives: BTreeMap<JobId, Life>,
    ready: BTreeMap<(QueueName, Kind), BTreeSet<Rank>>,
    scheduled: BTreeSet<(Wall, JobId)>,
    leased: BTreeSet<(Wall, JobId)>,
    counts: BTreeMap<(QueueName, Kind), Counts>,
    queues: BTreeMap<QueueName, Queue>,
    /// The states of their rates.
    tats: BTreeMap<QueueName, Tats>,
    /// The number of the commit that last changed a queue.
    queues_moved: BTreeMap<QueueName, u64>,
    holders: BTreeMap<WorkerId, BTreeSet<LeaseToken>>,
    /// Keys that were used.
    pub keys: BTreeMap<IdempotencyKey, KeyLife>,
    /// Every lease that was given out.
    pub tokens: BTreeSet<LeaseToken>,
    /// Every lease that a local handler was started with.
    pub started: BTreeSet<LeaseToken>,
    /// Requests to enqueue, by payload.
    pub sent: BTreeMap<String, Sent>,
    /// Latest reading of the wall clock in a commit; it may have been set back since.
    pub latest: Wall,
    /// Commits that took place.
    pub commits: u64,
    /// Jobs stored.
    pub created: u64,
    /// Jobs removed.
    pub removed: u64,
    /// Jobs that steps of bulk actions have released.
    pub released: u64,
}

impl Ledger {
    /// The life of a job that was ever stored.
    pub fn life(&self, id: JobId) -> Option<&Life> {
        self.lives.get(&id)
    }

    /// The same, to be changed.
    pub fn life_mut(&mut self, id: JobId) -> Option<&mut Life> {
        self.lives.get_mut(&id)
    }

    /// Whether another commit has changed a job after this one was first answered.
    pub fn was_overtaken(&self, commit: &Commit<'_>, id: JobId) -> bool {
        let moved = self.lives.get(&id).map_or(0, |life| life.moved);
        moved > commit.seen && moved != commit.number
    }

    /// Whether another commit has changed a queue after this one was first answered.
    pub fn queue_was_overtaken(&self, commit: &Commit<'_>, name: &QueueName) -> bool {
        let moved = self.queues_moved.get(name).copied().unwrap_or(0);
        moved > commit.seen && moved != commit.number
    }

    /// The row of a job that is stored.
    pub fn row(&self, id: JobId) -> Option<&Job> {
        self.lives.get(&id)?.detail.as_ref().map(|detail| &detail.job)
    }

    /// Every job that was ever stored.
    pub fn lives(&self) -> impl Iterator<Item = (JobId, &Life)> {
        self.lives.iter().map(|(id, life)| (*id, life))
    }

    /// Every job that is stored.
    pub fn details(&self) -> impl Iterator<Item = &JobDetail> {
        self.lives.values().filter_map(|life| life.detail.as_ref())
    }

    /// Jobs scheduled up to this instant.
    pub fn scheduled_by(&self, now: Wall) -> impl Iterator<Item = JobId> {
        self.scheduled.range(..=(now, JobId::LAST)).map(|(_, id)| *id)
    }

    /// Jobs whose lease ends by this instant.
    pub fn leased_by(&self, now: Wall) -> impl Iterator<Item = JobId> {
        self.leased.range(..=(now, JobId::LAST)).map(|(_, id)| *id)
    }

    /// Number of unfinished jobs.
    pub fn unfinished(&self) -> usize {
        let ready: usize = self.ready.values().map(BTreeSet::len).sum();
        ready + self.scheduled.len() + self.leased.len()
    }

    /// Every leased job.
    pub fn held(&self) -> impl Iterator<Item = (JobId, &Life)> {
        self.leased.iter().filter_map(|(_, id)| Some((*id, self.lives.get(id)?)))
    }

    /// Number of leases.
    pub fn leases(&self) -> usize {
        self.leased.len()
    }

    /// The leases a worker holds.
    pub fn held_by(&self, worker: &WorkerId) -> impl Iterator<Item = LeaseToken> {
        self.holders.get(worker).into_iter().flatten().copied()
    }

    /// The counters as they must be: per queue and kind, without those of zeros.
    pub fn counts(&self) -> &BTreeMap<(QueueName, Kind), Counts> {
        &self.counts
    }

    /// A queue, if it exists.
    pub fn queue(&self, name: &QueueName) -> Option<&Queue> {
        self.queues.get(name)
    }

    /// The states of the rates of a queue.
    pub fn tats(&self, queue: &QueueName) -> Tats {
        self.tats.get(queue).cloned().unwrap_or_default()
    }

    /// In the order of their names.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.values()
    }

    /// The ready jobs of a queue whose kind is wanted, the best-ranked first.
    pub fn ready(
        &self,
        queue: &QueueName,
        wanted: impl Fn(&Kind) -> bool,
    ) -> impl Iterator<Item = Rank> {
        let of_queue = self.ready.iter().filter(|((name, kind), _)| name == queue && wanted(kind));
        let ranks: BTreeSet<Rank> = of_queue.flat_map(|(_, ranks)| ranks).copied().collect();
        ranks.into_iter()
    }

    /// Whether some ready job of an open queue and kind is wanted, by the clock of the store.
    pub fn has_claimable(&self, now: Wall, wanted: impl Fn(&QueueName, &Kind) -> bool) -> bool {
        self.ready.iter().any(|((name, kind), ranks)| {
            let open = || {
                self.queues.get(name).is_none_or(|queue| {
                    let in_use = self.usage(name).of(kind);
                    queue.gate_of(kind, &in_use, now) == Gate::Open
                })
            };
            !ranks.is_empty() && wanted(name, kind) && open()
        })
    }

    fn usage(&self, queue: &QueueName) -> Usage {
        let of_queue = self.counts.iter().filter(|((name, _), _)| name == queue);
        Usage::new(of_queue.map(|((_, kind), counts)| (kind, counts)), self.tats(queue))
    }

    /// Adds a commit that took place.
    pub fn take_in(&mut self, commit: &Commit<'_>) {
        self.commits += 1;
        self.latest = self.latest.max(commit.out.now);
        let stored = |name: &QueueName| commit.queues.iter().any(|row| row.queue.name == *name);
        for (name, _) in self.queues.extract_if(.., |name, _| !stored(name)) {
            self.queues_moved.insert(name, commit.number);
        }
        for row in &commit.queues {
            self.tats.insert(row.queue.name.clone(), row.tats.clone());
            let before = self.queues.insert(row.queue.name.clone(), row.queue.clone());
            if before.as_ref() != Some(&row.queue) {
                self.queues_moved.insert(row.queue.name.clone(), commit.number);
            }
        }
        self.released += released(commit);
        for story in &commit.stories {
            self.note(story, commit.asked, commit.out.now.minus(commit.spread));
            self.note_lease(story, commit);
            self.note_move(story, commit);
            self.replace(story.id, story.after.clone());
        }
    }

    /// Notes whether a lease that was given or extended was computed by a clock set back since.
    fn note_lease(&mut self, story: &Story, commit: &Commit<'_>) {
        let gives = |event: &JobEvent| {
            matches!(
                event,
                JobEvent::Claimed { .. } | JobEvent::LeaseExtended { .. } | JobEvent::Renewed
            )
        };
        if let Some(life) = self.lives.get_mut(&story.id)
            && story.events.iter().any(gives)
        {
            let under_way = commit.read..commit.at;
            life.set_back_in_flight = commit.set_back.is_some_and(|at| under_way.contains(&at));
        }
    }

    /// Notes when a row changed, and when a lease ended.
    fn note_move(&mut self, story: &Story, commit: &Commit<'_>) {
        let Some(life) = self.lives.get_mut(&story.id) else { return };
        if story.before.as_ref() != story.row() {
            (life.moved, life.read) = (commit.number, commit.read);
        }
        let token = |job: &Job| job.lease().map(|_| job.token());
        let before = story.before.as_ref().and_then(token);
        if before.is_some() && before != story.row().and_then(token) {
            life.lease_ended = commit.at;
        }
    }

    fn note(&mut self, story: &Story, asked: u64, wall: Wall) {
        if story.events.contains(&JobEvent::Enqueued)
            && let Some(detail) = &story.after
        {
            self.begin(detail);
        }
        let Some(life) = self.lives.get_mut(&story.id) else { return };
        for event in &story.events {
            match event {
                JobEvent::Settled { verdict, epoch, to, .. } => {
                    life.reports.push((*epoch, *verdict));
                    life.given_back += u32::from(verdict.gives_back());
                    life.verdicts += u32::from(to.is_finished());
                }
                JobEvent::Reaped { to } => life.verdicts += u32::from(to.is_finished()),
                JobEvent::Cancelled { .. } => life.cancelled = true,
                JobEvent::Replayed { .. } => {
                    (life.claims, life.given_back, life.verdicts) = (0, 0, 0);
                }
                JobEvent::Claimed { epoch, .. } => {
                    life.epoch = life.epoch.max(*epoch);
                    life.claims += 1;
                    life.all_claims += 1;
                    (life.claimed, life.heartbeat_at, life.heartbeat_wall) = (asked, asked, wall);
                    self.tokens.insert(LeaseToken { job: story.id, epoch: *epoch });
                }
                JobEvent::LeaseExtended { .. } | JobEvent::Renewed => {
                    (life.heartbeat_at, life.heartbeat_wall) = (asked, wall);
                }
                JobEvent::Removed { .. } => self.removed += 1,
                JobEvent::Enqueued
                | JobEvent::Repeated { .. }
                | JobEvent::CancelledAgain
                | JobEvent::FellDue
                | JobEvent::Unexplained { .. } => {}
            }
        }
    }

    fn begin(&mut self, detail: &JobDetail) {
        let job = &detail.job;
        self.created += 1;
        self.sent.entry(detail.payload.as_str().to_owned()).or_default().stored += 1;
        if let Some(key) = &job.idempotency_key {
            let life = KeyLife { job: job.id, created_at: job.created_at };
            self.keys.insert(key.clone(), life);
        }
        let life = Life {
            detail: None,
            payload: detail.payload.clone(),
            epoch: Epoch::NEVER,
            claims: 0,
            given_back: 0,
            verdicts: 0,
            reports: Vec::new(),
            moved: 0,
            read: 0,
            lease_ended: 0,
            claimed: 0,
            heartbeat_at: 0,
            heartbeat_wall: Wall::default(),
            set_back_in_flight: false,
            cancelled: false,
            executions: 0,
            all_claims: 0,
        };
        self.lives.insert(job.id, life);
    }

    /// Puts the row of a job in place.
    fn replace(&mut self, id: JobId, detail: Option<JobDetail>) {
        let Some(life) = self.lives.get_mut(&id) else { return };
        let before = std::mem::replace(&mut life.detail, detail.clone());
        if let Some(detail) = before {
            self.index(&detail.job, false);
        }
        if let Some(detail) = detail {
            self.index(&detail.job, true);
        }
    }

    fn index(&mut self, job: &Job, add: bool) {
        let place = (job.queue.clone(), job.kind.clone());
        match &job.state {
            State::Queued { ready: true, .. } => {
                put(self.ready.entry(place.clone()).or_default(), job.rank, add);
            }
            State::Queued { ready: false, .. } => {
                put(&mut self.scheduled, (job.run_at, job.id), add);
            }
            State::Processing(lease) => {
                put(&mut self.leased, (lease.until, job.id), add);
                put(self.holders.entry(lease.worker.clone()).or_default(), job.token(), add);
            }
            State::Done { .. } | State::Failed { .. } | State::Cancelled { .. } => {}
        }
        let counts = self.counts.entry(place).or_default();
        if add {
            counts.add(job.into());
        } else {
            counts.take(job.into());
        }
        if counts.is_empty() {
            self.counts.remove(&(job.queue.clone(), job.kind.clone()));
        }
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, value: T, add: bool) {
    if add {
        set.insert(value);
    } else {
        set.remove(&value);
    }
}

/// Number of jobs that steps of bulk actions have released: all replays without those by operators,
/// one by one or by page.
fn released(commit: &Commit<'_>) -> u64 {
    if commit.batch.bulk.is_empty() {
        return 0;
    }
    let generation = |job: Option<&Job>| job.map_or(0, |job| u64::from(job.generation));
    let replayed = commit
        .stories
        .iter()
        .map(|story| generation(story.row()).saturating_sub(generation(story.before.as_ref())));
    let ordered = commit.batch.admin.iter().zip(&commit.out.admin);
    let ordered = ordered.map(|(command, answer)| match (command, answer) {
        (Admin::Replay(_), Ok(_)) => 1,
        (_, Ok(AdminDone::Replayed { count, .. })) => *count as u64,
        _ => 0,
    });
    replayed.sum::<u64>().saturating_sub(ordered.sum())
}
