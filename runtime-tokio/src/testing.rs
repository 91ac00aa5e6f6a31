//! An aid for tests of programs that use Windlass: a queue whose clock is moved by hand, and a
//! journal of what ran. Nothing waits for real time.

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

/// One attempt that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Of which job.
    pub id: JobId,
    /// Of which kind.
    pub kind: Kind,
    /// With which payload.
    pub payload: Payload,
    /// Which attempt it was, counted from one.
    pub attempt: u32,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The job is done.
    Completed,
    /// It failed with this error, and may be tried again.
    Failed(String),
    /// It failed with this error, for good.
    FailedForGood(String),
    /// It was put off.
    Snoozed(Duration),
    /// It was stopped.
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

/// How many instants at which something falls due one call of [`TestQueue::advance`] visits. More
/// are a job that goes on for ever, and the test is told so.
const STEPS: usize = 100_000;

impl TestQueue {
    /// Starts a queue with a clock of its own, whatever clock the builder had.
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

    /// The clock.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Waits until everything that is due has run.
    pub async fn run_until_idle(&self) {
        self.queue.idle().await.expect("the queue under test runs");
    }

    /// Waits until the dispatcher has done everything that is to be done at this instant, whatever
    /// handlers do meanwhile: for tests whose handlers wait for something.
    pub async fn settle(&self) {
        self.queue.shared().idle(false).await.expect("the queue under test runs");
    }

    /// Lets time pass, from one instant at which a job falls due to the next, and runs what is due
    /// at each.
    pub async fn advance(&self, time: Duration) {
        self.run_until_idle().await;
        let end = self.clock.now().wall.plus(windlass_core::Millis::new(millis(time)));
        for _ in 0..STEPS {
            let now = self.clock.now().wall;
            let due = self.queue.next_due().await.expect("the store under test can be read");
            let next = due.map_or(end, |due| due.max(now).min(end));
            self.clock.advance(Duration::from_millis(next.since(now).get()));
            self.run_until_idle().await;
            if next >= end {
                return;
            }
        }
        panic!("{STEPS} instants were not enough: some job is put off again and again");
    }

    /// Every attempt that has ended so far, in that order.
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
