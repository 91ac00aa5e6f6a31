//! For tests of programs that use Windlass: a queue whose clock is moved by hand, and a list of the
//! attempts that ended. Nothing waits for real time.

use std::ops::Deref;
use std::time::Duration;

use windlass_core::store::Store;
use windlass_core::{JobId, Kind, Payload, Verdict};

use crate::clock::{Clock, ManualClock};
use crate::context::Attempt;
use crate::new_job::millis;
use crate::sync::lock;
use crate::{Builder, Queue, StartError};

/// A queue on any store, with a clock that is moved by hand.
///
/// ```
/// use windlass_runtime_tokio::testing::{Outcome, TestQueue};
/// use windlass_runtime_tokio::{Context, JobError, NewJob, Runtime, days};
/// use windlass_store_memory::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = TestQueue::start(Runtime::builder(MemoryStore::new()).handler(
///     "remind",
///     |_: String, ctx: Context| async move {
///         if ctx.attempt() == 1 { Err(JobError::retry("no answer")) } else { Ok(()) }
///     },
/// ))?;
/// queue.enqueue(NewJob::of("remind", "Ada")?.delay(days(3))).await?;
///
/// queue.advance(days(2)).await;
/// assert!(queue.ran().is_empty());
///
/// queue.advance(days(2)).await;
/// let outcomes: Vec<Outcome> = queue.ran().into_iter().map(|ran| ran.outcome).collect();
/// assert_eq!(outcomes, [Outcome::Failed("no answer".into()), Outcome::Completed]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TestQueue {
    queue: Queue,
    clock: ManualClock,
}

/// One attempt that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the other fields are those of the job")]
pub struct Ran {
    pub id: JobId,
    pub kind: Kind,
    pub payload: Payload,
    /// The number of the attempt, from one.
    pub attempt: u32,
    pub outcome: Outcome,
}

/// The verdict of an attempt, or what ended it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The job is done.
    Completed,
    /// It failed with this error, and is retried if the job has retries left.
    Failed(String),
    /// It failed with this error, without a retry.
    FailedForGood(String),
    /// The handler snoozed the job for this long.
    Snoozed(Duration),
    /// It was stopped without a verdict.
    Stopped,
}

impl Ran {
    pub(crate) fn of(attempt: &Attempt, verdict: Option<&Verdict>) -> Self {
        let outcome = match verdict {
            Some(Verdict::Complete { .. }) => Outcome::Completed,
            Some(Verdict::Fail(failure)) if failure.retryable => {
                Outcome::Failed(failure.error.as_str().into())
            }
            Some(Verdict::Fail(failure)) => Outcome::FailedForGood(failure.error.as_str().into()),
            Some(Verdict::Snooze { delay }) => Outcome::Snoozed(Duration::from_millis(delay.get())),
            Some(Verdict::Release) | None => Outcome::Stopped,
        };
        let job = &attempt.job;
        let (kind, payload) = (job.kind.clone(), attempt.payload.clone());
        Self { id: job.id, kind, payload, attempt: job.attempts, outcome }
    }
}

/// Maximum number of instants that one call of [`TestQueue::advance`] visits. A test that needs
/// more has a job that is requeued for ever.
const MAX_STEPS: usize = 100_000;

impl TestQueue {
    /// Starts a queue with a [`ManualClock`], which replaces the builder's clock.
    pub fn start<S>(builder: Builder<S>) -> Result<Self, StartError>
    where
        S: Store + Send + 'static,
        S::Reader: Send + 'static,
    {
        let clock = ManualClock::new();
        let mut builder = builder.clock(clock.clone());
        builder.journal = true;
        Ok(Self { queue: builder.start()?, clock })
    }

    /// The clock of this queue. Moving it does not wait for jobs: see
    /// [`advance`](TestQueue::advance).
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The handle of this queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Waits until every job that is due has run.
    pub async fn run_until_idle(&self) {
        self.queue.idle().await.expect("the queue under test runs");
    }

    /// Waits until the dispatcher has nothing to do at this instant, even if handlers still run:
    /// for tests whose handlers wait for something.
    pub async fn settle(&self) {
        self.queue.shared().idle(false).await.expect("the queue under test runs");
    }

    /// Moves the clock forward, stopping at each instant at which a job falls due and running what
    /// is due there.
    pub async fn advance(&self, time: Duration) {
        self.run_until_idle().await;
        let end = self.clock.now().wall.plus(windlass_core::Millis::new(millis(time)));
        for _ in 0..MAX_STEPS {
            let now = self.clock.now().wall;
            let due = self.queue.next_due().await.expect("the store under test can be read");
            let next = due.map_or(end, |due| due.max(now).min(end));
            self.clock.advance(Duration::from_millis(next.since(now).get()));
            self.run_until_idle().await;
            if next >= end {
                return;
            }
        }
        panic!("jobs fell due at more than {MAX_STEPS} instants: a job is requeued for ever");
    }

    /// All attempts that have ended so far, in the order of their ends.
    pub fn ran(&self) -> Vec<Ran> {
        let journal = self.queue.shared().journal.as_ref();
        journal.map(|journal| lock(journal).clone()).unwrap_or_default()
    }

    /// The payloads of the attempts of this kind that have ended so far.
    pub fn ran_kind(&self, kind: &str) -> Vec<Payload> {
        let of_kind = |ran: Ran| (ran.kind.as_str() == kind).then_some(ran.payload);
        self.ran().into_iter().filter_map(of_kind).collect()
    }
}

impl Deref for TestQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.queue
    }
}
