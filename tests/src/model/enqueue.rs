//! New jobs: a known key first, then what makes no sense, then the queue's limit.

use windlass_core::GroupId;
use windlass_core::{
    EnqueueRefused, Fingerprint, IdempotencyKey, JobId, JobTimeout, KeyRecord, Kind, LeaseLength,
    MaxRetries, NewJob, Policy, Priority, QueueName, QueueSettings, Receipt, RetryPolicy,
    StateName, Wall, When,
};

use super::Model;
use super::job::ModelJob;

/// The farthest ahead a job may be scheduled: ten years, three of them leap years at most.
const TEN_YEARS_MS: u64 = 3_653 * 24 * 60 * 60 * 1_000;

/// A key that made a job.
#[derive(Debug, Clone)]
pub(super) struct ModelKey {
    pub(super) key: IdempotencyKey,
    pub(super) job: JobId,
    request: Request,
    pub(super) created_at: Wall,
    pub(super) orphan_until: Option<Wall>,
}

impl ModelKey {
    pub(super) fn row(&self) -> KeyRecord {
        KeyRecord {
            key: self.key.clone(),
            job: self.job,
            request: Fingerprint(0),
            created_at: self.created_at,
            orphan_until: self.orphan_until,
        }
    }
}

/// The whole request, with defaults filled in: what "the same request" compares.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    queue: QueueName,
    kind: Kind,
    /// The meaning of the payload, however it was written.
    payload: Fingerprint,
    priority: Priority,
    when: When,
    options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Options {
    max_retries: MaxRetries,
    timeout: Option<JobTimeout>,
    visibility_timeout: LeaseLength,
    retry: RetryPolicy,
}

impl Model {
    pub(super) fn enqueue(
        &mut self,
        now: Wall,
        new: &NewJob,
        policy: &Policy,
    ) -> Result<Receipt, EnqueueRefused> {
        let known = self.queues.iter().find(|queue| queue.name == new.queue);
        let settings = known.map(|queue| queue.settings.clone()).unwrap_or_default();
        let options = options(new, &settings, policy);
        if let Some(answer) = self.known(now, new, options, policy) {
            if answer.is_ok() {
                self.did(&new.queue).deduplicated += 1;
            }
            return answer;
        }
        let run_at = self.run_at(now, new)?;
        self.room_for_queue(&new.queue, policy)?;
        let queued = |job: &&ModelJob| job.state == StateName::Queued && job.queue == new.queue;
        let waiting = self.jobs.iter().filter(queued).count() as u64;
        if let Some(limit) = settings.max_queued
            && waiting >= limit.get()
        {
            self.note("a full queue takes no job");
            return Err(EnqueueRefused::QueueFull { queue: new.queue.clone(), limit });
        }
        self.queue(&new.queue);
        self.did(&new.queue).enqueued += 1;
        self.last_id += 1;
        let id = JobId::new(self.last_id).expect("few jobs are made");
        self.jobs.push(made(id, new, options, now, run_at));
        self.place(self.jobs.len() - 1);
        self.note(if run_at > now { "enqueue for later" } else { "enqueue" });
        if let Some(request) = request(new, options) {
            let key = new.idempotency.as_ref().map(|idem| idem.key.clone());
            let key = key.expect("a request to compare has a key");
            self.keys.retain(|old| old.key != key);
            self.keys.push(ModelKey { key, job: id, request, created_at: now, orphan_until: None });
        }
        Ok(Receipt::new(id, false))
    }

    /// Shows the jobs to those who asked, as they are at the end of the batch.
    pub(super) fn echo(&mut self, new: &[NewJob], answers: &mut [Result<Receipt, EnqueueRefused>]) {
        for (new, answer) in new.iter().zip(answers) {
            let Ok(receipt) = answer else { continue };
            if new.echo {
                let job = self.jobs.iter().find(|job| job.id == receipt.id);
                receipt.row = job.map(|job| Box::new(job.job()));
                self.note("a receipt shows the job as the batch left it");
            }
        }
    }

    /// The answer that the key's first request got, while its window runs or its job is not
    /// finished.
    fn known(
        &mut self,
        now: Wall,
        new: &NewJob,
        options: Options,
        policy: &Policy,
    ) -> Option<Result<Receipt, EnqueueRefused>> {
        let request = request(new, options)?;
        let key = &new.idempotency.as_ref()?.key;
        let known = self.keys.iter().find(|known| known.key == *key)?.clone();
        let unfinished = self.jobs.iter().any(|job| job.id == known.job && !job.is_finished());
        let in_window = known.created_at.plus(policy.idempotency_window) > now;
        if !unfinished && !in_window {
            self.note("a key is free again after its window");
            return None;
        }
        Some(if known.request == request {
            self.note("a repeated request finds its job");
            Ok(Receipt::new(known.job, true))
        } else {
            self.note("another request with a known key is a conflict");
            Err(EnqueueRefused::IdempotencyConflict { existing: known.job })
        })
    }

    fn run_at(&mut self, now: Wall, new: &NewJob) -> Result<Wall, EnqueueRefused> {
        let latest = Wall::new(now.get().saturating_add_unsigned(TEN_YEARS_MS));
        match new.when {
            When::Now => Ok(now),
            When::After(delay) => Ok(Wall::new(now.get().saturating_add_unsigned(delay.get()))),
            When::At(given) if given > latest => {
                self.note("a job too far ahead is refused");
                Err(EnqueueRefused::TooFarAhead { given, latest })
            }
            When::At(given) => Ok(given.max(now)),
        }
    }
}

fn options(new: &NewJob, queue: &QueueSettings, policy: &Policy) -> Options {
    let timeout = [new.timeout, queue.timeout, policy.timeout];
    let retries = [new.max_retries, queue.max_retries, Some(policy.max_retries)];
    let visibility =
        [new.visibility_timeout, queue.visibility_timeout, Some(policy.visibility_timeout)];
    let retry = [new.retry, queue.retry, Some(policy.retry)];
    Options {
        max_retries: first(retries).expect("the policy says it"),
        timeout: first(timeout),
        visibility_timeout: first(visibility).expect("the policy says it"),
        retry: first(retry).expect("the policy says it"),
    }
}

fn first<T>(said: [Option<T>; 3]) -> Option<T> {
    said.into_iter().flatten().next()
}

fn request(new: &NewJob, options: Options) -> Option<Request> {
    let payload = new.idempotency.as_ref()?.payload;
    let (queue, kind) = (new.queue.clone(), new.kind.clone());
    Some(Request { queue, kind, payload, priority: new.priority, when: new.when, options })
}

fn made(id: JobId, new: &NewJob, options: Options, now: Wall, run_at: Wall) -> ModelJob {
    ModelJob {
        id,
        queue: new.queue.clone(),
        kind: new.kind.clone(),
        payload: new.payload.clone(),
        priority: new.priority,
        rank: (0, run_at),
        state: StateName::Queued,
        due: run_at <= now,
        attempts: 0,
        max_retries: options.max_retries,
        epoch: 0,
        generation: 0,
        run_at,
        timeout: options.timeout,
        visibility_timeout: options.visibility_timeout,
        retry: options.retry,
        key: new.idempotency.as_ref().map(|idem| idem.key.clone()),
        worker: None,
        lease_until: None,
        lease_length: None,
        created_at: now,
        updated_at: now,
        started_at: None,
        finished_at: None,
        last_error: None,
        group: GroupId::LOST,
        result: None,
        progress: None,
        spoken: None,
    }
}
