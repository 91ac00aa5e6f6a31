//! `serve --demo`: a first minute that shows what a queue does.
//!
//! Jobs of several kinds come with random priorities and delays; some fail and are retried, some
//! become dead letters; a duplicate is recognised, a full queue refuses; every ten seconds many
//! come at once. It goes through the same queue as other clients.

mod handlers;
mod jobs;
mod printer;

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use windlass_core::{MaxQueued, MaxRunning, Millis, QueueSettings, RetryPolicy, Strategy, View};
use windlass_runtime_tokio::{EnqueueError, NewJob, Queue, Receipt};

use crate::settings::{Id, Value};

pub(crate) use handlers::register;

use printer::{EventPrinter, line};

/// Time between two rounds of new jobs.
const ROUND_INTERVAL: Duration = Duration::from_millis(400);
/// Rounds between two lines of figures.
const FIGURES: u64 = 8;
/// Number of waiting jobs above which no more are enqueued.
const WAITING: u64 = 150;
/// `max_queued` of the queue that refuses jobs.
const SMALL: u32 = 5;
/// Rounds between two bursts: ten seconds.
const BURST_EVERY: u64 = 25;
/// Jobs of a burst.
const BURST: u32 = 30;
/// Jobs that wait in the paused queue.
const IMPORTS: u32 = 12;
/// How long finished jobs are kept, so that the store does not grow.
const KEPT: Millis = Millis::minutes(30);

/// The settings that a demo adds, where they were not set.
pub(crate) fn settings(flags: &mut Vec<(Id, Value)>) {
    for id in [Id::KeepDone, Id::KeepFailed, Id::KeepCancelled] {
        if !flags.iter().any(|(given, _)| *given == id) {
            flags.push((id, Value::Time(KEPT)));
        }
    }
}

/// Enqueues jobs until the queue shuts down.
pub(crate) async fn run(queue: Queue) {
    let mut printer = EventPrinter::new(queue.events(), Instant::now());
    if prepare(&queue).await.is_err() {
        return;
    }
    line("jobs come and go now; look around in another terminal meanwhile");
    let mut ticks = tokio::time::interval(ROUND_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0_u64.. {
        tokio::select! {
            () = printer.listen() => return,
            _ = ticks.tick() => {}
        }
        if turn(&queue, round, &mut printer).await.is_err() {
            return;
        }
    }
}

/// Queues with limits, and one that is paused while jobs wait in it.
async fn prepare(queue: &Queue) -> Result<(), Over> {
    let full =
        QueueSettings { max_queued: MaxQueued::new(SMALL.into()).ok(), ..QueueSettings::default() };
    queue.set_queue("postcards", full).await.map_err(|_| Over)?;
    for (name, running) in [("reports", 2), ("mail", 4), ("pictures", 3), ("backups", 1)] {
        let concurrency = MaxRunning::new(running).ok();
        let few = QueueSettings { concurrency, ..QueueSettings::default() };
        queue.set_queue(name, few).await.map_err(|_| Over)?;
    }
    queue.pause("imports").await.map_err(|_| Over)?;
    for number in 0..IMPORTS {
        let import = NewJob::of("import", &jobs::import(number)).map_err(|_| Over)?;
        taken(queue.try_enqueue(import.queue("imports")).await)?;
    }
    // Groups of errors are there from the start.
    for number in 0..3 {
        let invoice = NewJob::of("invoice", &jobs::old_invoice(number)).map_err(|_| Over)?;
        taken(queue.try_enqueue(invoice.queue("billing")).await)?;
    }
    Ok(())
}

/// Enqueues the jobs of a round, and prints what happened since the last.
async fn turn(queue: &Queue, round: u64, printer: &mut EventPrinter) -> Result<(), Over> {
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
    if round.is_multiple_of(BURST_EVERY) {
        burst(queue, round).await?;
    }
    if round % FIGURES == FIGURES - 1 {
        printer.figures(&counts);
    }
    Ok(())
}

/// A random number below this.
pub(super) fn random(below: u32) -> u32 {
    getrandom::u32().unwrap_or_default() % below.max(1)
}

async fn some_job(queue: &Queue) -> Result<(), Over> {
    let (kind, name, payload) = jobs::any();
    let priority = i16::try_from(random(11)).unwrap_or_default() - 5;
    let job = NewJob::of(kind, &payload).map_err(|_| Over)?.priority(priority).max_retries(3);
    let job = job.queue(name).retry(waits(1_000));
    let later = random(4) == 0;
    let delay = Duration::from_millis(u64::from(random(6_000)));
    taken(queue.try_enqueue(if later { job.delay(delay) } else { job }).await).map(drop)
}

/// Waits between attempts that double, from this one on.
fn waits(first_ms: u64) -> RetryPolicy {
    let doubling = Strategy::Exponential { factor: 2_000 };
    let first = Millis::new(first_ms);
    RetryPolicy::new(doubling, first, Millis::seconds(8), 250).unwrap_or_default()
}

/// Many short jobs at once, and two commands: one that completes, and one that fails with output.
async fn burst(queue: &Queue, round: u64) -> Result<(), Over> {
    for number in 0..BURST {
        let sync = NewJob::of("sync", &jobs::sync(number)).map_err(|_| Over)?.queue("sync");
        taken(queue.try_enqueue(sync).await)?;
    }
    let tenant = u32::try_from(round / BURST_EVERY % 4).unwrap_or_default();
    for fails in [false, true] {
        let backup = NewJob::of("command", &jobs::backup(412 + tenant, fails));
        let backup = backup.map_err(|_| Over)?.queue("backups").max_retries(2);
        taken(queue.try_enqueue(backup.retry(waits(300))).await)?;
    }
    Ok(())
}

/// The same idempotency key twice: it is one job.
async fn duplicate(queue: &Queue, round: u64) -> Result<(), Over> {
    let key = format!("order-{round}");
    let email = jobs::email(u32::try_from(round).unwrap_or_default());
    let order = NewJob::of("email", &email).map_err(|_| Over)?.idempotency_key(&key);
    let order = order.queue("mail");
    let first = taken(queue.try_enqueue(order.clone()).await)?;
    let again = taken(queue.try_enqueue(order).await)?;
    if let Some(id) = again.filter(|again| again.duplicate).and(first).map(|first| first.id) {
        line(&format!("duplicate: the key {key} came twice; both times the answer is job {id}"));
    }
    Ok(())
}

/// More postcards than their queue holds; no worker here takes them.
async fn overflow(queue: &Queue) -> Result<(), Over> {
    for number in 0..=SMALL {
        let card = NewJob::of("postcard", &jobs::postcard(number)).map_err(|_| Over)?;
        let card = card.queue("postcards");
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

/// The queue shuts down: the demo is over.
struct Over;

/// What was stored; `None` if it was refused for now.
fn taken(result: Result<Receipt, EnqueueError>) -> Result<Option<Receipt>, Over> {
    match result {
        Ok(receipt) => Ok(Some(receipt)),
        Err(EnqueueError::Unserved(unserved)) if !unserved.is_overloaded() => Err(Over),
        Err(_) => Ok(None),
    }
}
