//! `serve --demo`: a first minute that shows what a queue does. Jobs of several kinds come with
//! random priorities and delays; some fail and are tried again, some end as dead letters; a
//! duplicate is recognised, a full queue refuses. It goes through the same queue as everybody.

mod handlers;
mod tell;

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use windlass_core::{MaxQueued, MaxRunning, Millis, QueueSettings, RetryPolicy, Strategy, View};
use windlass_runtime_tokio::{EnqueueError, NewJob, Queue, Receipt};

use crate::settings::{Id, Value};

pub(crate) use handlers::{KINDS, register};

use tell::{Teller, line};

/// Between two handfuls of new jobs.
const HANDFUL: Duration = Duration::from_millis(400);
/// Handfuls between two lines of figures.
const FIGURES: u64 = 8;
/// Jobs that wait before no more are made: the demo never grows.
const WAITING: u64 = 150;
/// How many the queue that fills up holds.
const SMALL: u64 = 5;
/// Jobs that wait in the queue that is paused.
const IMPORTS: u32 = 12;
/// How long finished jobs are kept, so that it does not grow either.
const KEPT: Millis = Millis::minutes(30);

/// The settings that a demo adds, where nobody said otherwise.
pub(crate) fn settings(flags: &mut Vec<(Id, Value)>) {
    for id in [Id::KeepDone, Id::KeepFailed, Id::KeepCancelled] {
        if !flags.iter().any(|(given, _)| *given == id) {
            flags.push((id, Value::Time(KEPT)));
        }
    }
}

/// Makes jobs until the queue takes no more.
pub(crate) async fn run(queue: Queue) {
    let mut teller = Teller::new(queue.events(), Instant::now());
    if prepare(&queue).await.is_err() {
        return;
    }
    line("jobs come and go now; look around in another terminal meanwhile");
    let mut ticks = tokio::time::interval(HANDFUL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0_u64.. {
        tokio::select! {
            () = teller.listen() => return,
            _ = ticks.tick() => {}
        }
        if turn(&queue, round, &mut teller).await.is_err() {
            return;
        }
    }
}

/// Queues with limits, and one that is paused while jobs wait in it.
async fn prepare(queue: &Queue) -> Result<(), Over> {
    let full = QueueSettings { max_queued: MaxQueued::new(SMALL).ok(), ..QueueSettings::default() };
    let few = QueueSettings { concurrency: MaxRunning::new(2).ok(), ..QueueSettings::default() };
    queue.set_queue("postcards", full).await.map_err(|_| Over)?;
    queue.set_queue("reports", few).await.map_err(|_| Over)?;
    queue.pause("imports").await.map_err(|_| Over)?;
    for number in 0..IMPORTS {
        let import = NewJob::of("report", &number).map_err(|_| Over)?.queue("imports");
        taken(queue.try_enqueue(import).await)?;
    }
    Ok(())
}

/// The queue of a kind.
fn queue_of(kind: &str) -> &'static str {
    match kind {
        "email" => "mail",
        "thumbnail" => "pictures",
        "report" => "reports",
        _ => "default",
    }
}

/// One round.
async fn turn(queue: &Queue, round: u64, teller: &mut Teller) -> Result<(), Over> {
    let counts = queue.counts().await.map_err(|_| Over)?;
    if counts.get(View::Queued) + counts.get(View::Scheduled) < WAITING {
        for _ in 0..=random(4) {
            some_job(queue).await?;
        }
    }
    match round % 20 {
        3 => duplicate(queue, round).await?,
        11 => overflow(queue).await?,
        _ => {}
    }
    if round % FIGURES == FIGURES - 1 {
        teller.figures(&counts);
    }
    Ok(())
}

/// A number below this, by chance.
pub(super) fn random(below: u32) -> u32 {
    getrandom::u32().unwrap_or_default() % below.max(1)
}

async fn some_job(queue: &Queue) -> Result<(), Over> {
    let kind = KINDS[random(u32::try_from(KINDS.len()).unwrap_or(1)) as usize];
    let priority = i16::try_from(random(11)).unwrap_or_default() - 5;
    let doubling = Strategy::Exponential { factor: 2_000 };
    let waits = RetryPolicy::new(doubling, Millis::seconds(1), Millis::seconds(8), 250);
    let job = NewJob::of(kind, &random(1_000)).map_err(|_| Over)?.priority(priority).max_retries(3);
    let job = job.queue(queue_of(kind)).retry(waits.unwrap_or_default());
    let later = random(4) == 0;
    let delay = Duration::from_millis(u64::from(random(6_000)));
    taken(queue.try_enqueue(if later { job.delay(delay) } else { job }).await).map(drop)
}

/// The same order twice: it is one job.
async fn duplicate(queue: &Queue, round: u64) -> Result<(), Over> {
    let key = format!("order-{round}");
    let order = NewJob::of("email", &round).map_err(|_| Over)?.idempotency_key(&key);
    let first = taken(queue.try_enqueue(order.clone()).await)?;
    let again = taken(queue.try_enqueue(order).await)?;
    if let Some(id) = again.filter(|again| again.duplicate).and(first).map(|first| first.id) {
        line(&format!("duplicate: the key {key} came twice; both times the answer is job {id}"));
    }
    Ok(())
}

/// More postcards than their queue holds; nobody here delivers any.
async fn overflow(queue: &Queue) -> Result<(), Over> {
    for number in 0..=SMALL {
        let card = NewJob::of("postcard", &number).map_err(|_| Over)?.queue("postcards");
        match queue.try_enqueue(card).await {
            Err(EnqueueError::Refused(refused)) => {
                line(&format!("refused: {refused}"));
                break;
            }
            other => drop(taken(other)?),
        }
    }
    Ok(())
}

/// The queue takes no more: the demo is over.
struct Over;

/// What was stored; nothing if it was refused for now.
fn taken(result: Result<Receipt, EnqueueError>) -> Result<Option<Receipt>, Over> {
    match result {
        Ok(receipt) => Ok(Some(receipt)),
        Err(EnqueueError::Unserved(unserved)) if !unserved.is_overloaded() => Err(Over),
        Err(_) => Ok(None),
    }
}
