//! A trace as plain data, and how a step becomes a batch for a store as it stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_core::bulk;
use windlass_core::store::{
    Admin, AdminDone, Batch, ClaimFor, ClockView, Cursor, DeadFilter, Dump, ExpectedSetting,
    Heartbeat, Outcomes, Purge, QueueSweep, Reap, Reaped, Settle, SlotFigures, Worker,
};
use windlass_core::{
    BatchId, Epoch, FigureSet, Fingerprint, JobId, JobTimeout, Kind, LeaseLength, LeaseToken,
    MaxRetries, NewJob, Payload, Policy, Priority, ProcessId, QueueName, QueueSettings,
    RetryPolicy, SettingKey, SettingValue, Span, StateName, Verdict, Wall, When, WorkerId,
};

use super::START;
use super::bulk::{BulkPlan, planned};

/// A sequence of batches.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The defaults for all of its jobs.
    pub policy: Policy,
    /// One batch each.
    pub steps: Vec<Step>,
}

/// A batch, before its jobs are known by number.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// By how many milliseconds the wall clock moves before it; it may go back.
    pub clock_ms: i64,
    /// The process it comes from.
    pub process: u64,
    pub(crate) settles: Vec<SettlePlan>,
    pub(crate) heartbeats: Vec<HeartbeatPlan>,
    pub(crate) admin: Vec<AdminPlan>,
    /// Steps of bulk actions, of this number of jobs each; those of the batch before if it is zero.
    pub(crate) bulk: Option<usize>,
    pub(crate) enqueues: Vec<EnqueuePlan>,
    pub(crate) reap: Option<ReapPlan>,
    pub(crate) promote: Option<usize>,
    pub(crate) purge: Option<Purge>,
    /// Look for queues that hold nothing, this many at once, on from where the last page stopped.
    pub(crate) queue_sweep: Option<usize>,
    pub(crate) claims: Vec<ClaimFor>,
    /// Whether what was counted so far is written.
    pub(crate) figures: bool,
}

/// A job, by its place among those there are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pick {
    /// The job with this number, if there is one.
    Id(u64),
    /// The n-th running job.
    Running(usize),
    /// The n-th dead letter.
    Dead(usize),
    /// The n-th cancelled job.
    Cancelled(usize),
    /// The n-th finished job.
    Finished(usize),
}

/// A token, by its age.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TokenPlan {
    /// Of the latest claim.
    Latest,
    /// Of a claim this number before it.
    Older(u64),
    /// Of a claim that was never made.
    Invented,
}

#[derive(Debug, Clone)]
pub(crate) struct SettlePlan {
    pub(crate) job: Pick,
    pub(crate) token: TokenPlan,
    pub(crate) verdict: Verdict,
    /// Sent twice in the same batch.
    pub(crate) twice: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct HeartbeatPlan {
    pub(crate) job: Pick,
    pub(crate) token: TokenPlan,
    pub(crate) extend: Option<LeaseLength>,
    pub(crate) progress: Option<Payload>,
}

#[derive(Debug, Clone)]
pub(crate) enum AdminPlan {
    Cancel(Pick),
    Replay(Pick),
    Delete(Pick),
    /// On from where the last one stopped, or from the beginning.
    ReplayDead {
        filter: DeadFilter,
        on: bool,
        limit: usize,
    },
    /// From the beginning.
    DiscardDead {
        filter: DeadFilter,
        limit: usize,
    },
    Pause(QueueName, Option<Arc<str>>),
    Resume(QueueName),
    SetQueue(QueueName, QueueSettings, Option<Expected>),
    DeleteQueue(QueueName),
    SetSetting(SettingKey, Option<SettingValue>, ExpectedSetting),
    SeeWorker(Worker),
    RemoveWorker(WorkerId),
    StopWorker(WorkerId),
    LookAtWorker(WorkerId),
    Bulk(BulkPlan),
}

/// The settings that a change of settings expects.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    /// Those of the store before the batch.
    Stored,
    These(QueueSettings),
}

impl Expected {
    fn resolve(&self, name: &QueueName, dump: &Dump) -> QueueSettings {
        let row = dump.queues.iter().find(|row| row.queue.name == *name);
        match self {
            Self::Stored => {
                row.map_or_else(QueueSettings::default, |row| row.queue.settings.clone())
            }
            Self::These(settings) => settings.clone(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum EnqueuePlan {
    New(NewJob),
    /// The n-th last request that had a key, once more, with at most one thing changed.
    Again {
        nth: usize,
        variation: Variation,
    },
}

/// What is changed in a request that is made again.
#[derive(Debug, Clone)]
pub(crate) enum Variation {
    Nothing,
    /// Another text of the same JSON.
    Spelling(Payload),
    Meaning(Fingerprint),
    Queue(QueueName),
    Kind(Kind),
    Priority(Priority),
    When(When),
    Retries(MaxRetries),
    Timeout(JobTimeout),
    Visibility(LeaseLength),
    Retry(RetryPolicy),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReapPlan {
    pub(crate) limit: usize,
    /// On from where the last page stopped.
    pub(crate) on: bool,
    /// Leases that still run as well.
    pub(crate) all: bool,
    /// How far off the clock seems to be.
    pub(crate) off_ms: Option<i64>,
    /// How long ago the clock was stepped.
    pub(crate) trusted_for_ms: Option<i64>,
}

/// What is known of the run so far.
pub(crate) struct Memory {
    now: Wall,
    seq: u64,
    reap_on: Option<Cursor>,
    replay_on: Option<Cursor>,
    sweep_on: Option<QueueName>,
    /// Requests that had a key.
    sent: Vec<NewJob>,
    /// The steps of bulk actions that were planned last.
    planned: Vec<bulk::Step>,
    /// What was counted and not written yet, by slot.
    counted: BTreeMap<Wall, FigureSet>,
    /// The store after the last batch.
    pub(crate) dump: Dump,
}

impl Memory {
    pub(crate) fn new(dump: Dump) -> Self {
        let (sent, counted) = (Vec::new(), BTreeMap::new());
        let (reap_on, replay_on, sweep_on) = (None, None, None);
        let planned = Vec::new();
        Self { now: START, seq: 0, reap_on, replay_on, sweep_on, sent, planned, counted, dump }
    }

    pub(crate) fn learn(&mut self, outcomes: &Outcomes, dump: Dump) {
        self.dump = dump;
        for (queue, figures) in &outcomes.figures {
            let slot = Span::Live.slot(outcomes.now);
            self.counted.entry(slot).or_default().count(queue, figures);
        }
        if let Some(Reaped::Page { next, .. }) = outcomes.reaped {
            self.reap_on = next;
        }
        if let Some(swept) = &outcomes.queues_swept {
            self.sweep_on.clone_from(&swept.next);
        }
        for answer in &outcomes.admin {
            if let Ok(AdminDone::Replayed { next, .. }) = answer {
                self.replay_on = *next;
            }
        }
    }

    fn pick(&self, pick: Pick) -> JobId {
        let nth = |nth: usize, wanted: fn(StateName) -> bool| {
            let jobs = self.dump.jobs.iter().map(|row| &row.job);
            let found: Vec<JobId> =
                jobs.filter(|job| wanted(job.state.name())).map(|job| job.id).collect();
            found.get(nth % found.len().max(1)).copied().unwrap_or(JobId::FIRST)
        };
        match pick {
            Pick::Id(number) => JobId::new(number).unwrap_or(JobId::FIRST),
            Pick::Running(at) => nth(at, |state| state == StateName::Processing),
            Pick::Dead(at) => nth(at, |state| state == StateName::Failed),
            Pick::Cancelled(at) => nth(at, |state| state == StateName::Cancelled),
            Pick::Finished(at) => nth(at, StateName::is_finished),
        }
    }

    fn new_job(&mut self, plan: &EnqueuePlan) -> NewJob {
        let new = match plan {
            EnqueuePlan::New(new) => new.clone(),
            EnqueuePlan::Again { nth, variation } => {
                let sent = self.sent.iter().rev().nth(nth % self.sent.len().max(1));
                let sent = sent.cloned();
                sent.map_or_else(
                    || NewJob::new(Kind::default(), Payload::null()),
                    |mut new| {
                        variation.apply(&mut new);
                        new
                    },
                )
            }
        };
        if new.idempotency.is_some() && matches!(plan, EnqueuePlan::New(_)) {
            self.sent.push(new.clone());
        }
        new
    }

    fn token(&self, pick: Pick, plan: TokenPlan) -> LeaseToken {
        let job = self.pick(pick);
        let row = self.dump.jobs.iter().find(|row| row.job.id == job);
        let latest = row.map_or(0, |row| row.job.epoch.get());
        let epoch = match plan {
            TokenPlan::Latest => latest,
            TokenPlan::Older(by) => latest.saturating_sub(by),
            TokenPlan::Invented => latest + 1,
        };
        LeaseToken { job, epoch: Epoch::new(epoch) }
    }
}

impl Variation {
    fn apply(&self, new: &mut NewJob) {
        match self {
            Self::Nothing => {}
            Self::Spelling(payload) => new.payload = payload.clone(),
            Self::Meaning(meaning) => {
                new.idempotency.iter_mut().for_each(|idem| idem.payload = *meaning);
            }
            Self::Queue(queue) => new.queue = queue.clone(),
            Self::Kind(kind) => new.kind = kind.clone(),
            Self::Priority(priority) => new.priority = *priority,
            Self::When(when) => new.when = *when,
            Self::Retries(retries) => new.max_retries = Some(*retries),
            Self::Timeout(timeout) => new.timeout = Some(*timeout),
            Self::Visibility(length) => new.visibility_timeout = Some(*length),
            Self::Retry(retry) => new.retry = Some(*retry),
        }
    }
}

/// The batch that a step means now.
pub(crate) fn resolve(trace: &Trace, step: &Step, memory: &mut Memory) -> (Wall, Batch) {
    memory.now = Wall::new(memory.now.get().saturating_add(step.clock_ms));
    memory.seq += 1;
    let now = memory.now;
    let id = BatchId { process: ProcessId(step.process), seq: memory.seq };
    let mut batch = Batch::new(id, trace.policy);
    for plan in &step.settles {
        let token = memory.token(plan.job, plan.token);
        let settle = Settle { token, verdict: plan.verdict.clone() };
        batch.settles.extend(plan.twice.then(|| settle.clone()));
        batch.settles.push(settle);
    }
    let heartbeat = |plan: &HeartbeatPlan| Heartbeat {
        token: memory.token(plan.job, plan.token),
        extend: plan.extend,
        progress: plan.progress.clone(),
    };
    batch.heartbeats = step.heartbeats.iter().map(heartbeat).collect();
    batch.admin = step.admin.iter().map(|plan| resolve_admin(plan, memory)).collect();
    if let Some(limit) = step.bulk {
        if limit > 0 {
            memory.planned = planned(&memory.dump, limit);
        }
        batch.bulk.clone_from(&memory.planned);
    }
    batch.enqueues = step.enqueues.iter().map(|plan| memory.new_job(plan)).collect();
    batch.reap = step.reap.map(|plan| Reap {
        limit: plan.limit,
        after: memory.reap_on.filter(|_| plan.on),
        all: plan.all,
    });
    if let Some(plan) = step.reap {
        let expected = plan.off_ms.map(|off| Wall::new(now.get().saturating_add(off)));
        let ago = |ago| Wall::new(now.get().saturating_sub(ago));
        let trusted_since = plan.trusted_for_ms.map(ago);
        batch.clock = ClockView { expected, trusted_since };
        // The process of this batch is one worker, and knows another one to be dead.
        batch.own = (plan.limit % 2 == 0).then(|| WorkerId::new("w1").expect("a worker"));
        batch.dead = (plan.limit % 3 == 0)
            .then(|| WorkerId::new("w2").expect("a worker"))
            .into_iter()
            .collect();
    }
    batch.promote = step.promote;
    batch.purge = step.purge;
    let after = memory.sweep_on.clone();
    batch.queue_sweep = step.queue_sweep.map(|limit| QueueSweep { after, limit });
    batch.claims.clone_from(&step.claims);
    if step.figures {
        let counted = std::mem::take(&mut memory.counted).into_iter();
        batch.figures = counted.map(|(slot, figures)| SlotFigures { slot, figures }).collect();
    }
    (now, batch)
}

fn resolve_admin(plan: &AdminPlan, memory: &Memory) -> Admin {
    match plan {
        AdminPlan::Cancel(pick) => Admin::Cancel(memory.pick(*pick)),
        AdminPlan::Replay(pick) => Admin::Replay(memory.pick(*pick)),
        AdminPlan::Delete(pick) => Admin::Delete(memory.pick(*pick)),
        AdminPlan::ReplayDead { filter, on, limit } => {
            let after = memory.replay_on.filter(|_| *on);
            Admin::ReplayDead { filter: filter.clone(), after, limit: *limit }
        }
        AdminPlan::DiscardDead { filter, limit } => {
            Admin::DiscardDead { filter: filter.clone(), after: None, limit: *limit }
        }
        AdminPlan::Pause(name, by) => Admin::Pause { name: name.clone(), by: by.clone() },
        AdminPlan::Resume(name) => Admin::Resume(name.clone()),
        AdminPlan::SetQueue(name, settings, expected) => Admin::SetQueue {
            name: name.clone(),
            settings: settings.clone(),
            expected: expected
                .as_ref()
                .map(|expected| Box::new(expected.resolve(name, &memory.dump))),
        },
        AdminPlan::DeleteQueue(name) => Admin::DeleteQueue(name.clone()),
        AdminPlan::SetSetting(key, value, expected) => {
            Admin::SetSetting { key: key.clone(), value: value.clone(), expected: expected.clone() }
        }
        AdminPlan::SeeWorker(worker) => Admin::SeeWorker(worker.clone()),
        AdminPlan::RemoveWorker(id) => Admin::RemoveWorker(id.clone()),
        AdminPlan::StopWorker(id) => Admin::StopWorker(id.clone()),
        AdminPlan::LookAtWorker(id) => Admin::LookAtWorker(id.clone()),
        AdminPlan::Bulk(plan) => plan.resolve(&memory.dump),
    }
}
