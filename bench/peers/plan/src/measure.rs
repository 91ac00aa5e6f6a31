//! The phases, and the line that reports them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::lives::lives;
use crate::{AT_ONCE, BULK, Outcome, Peer, Phase, Ran, Task, now};

/// Opens a peer, does the phase, and gives the line that tells it.
pub fn run<P, F, Fut>(task: &Task, open: F) -> Outcome<String>
where
    P: Peer,
    F: FnOnce(Task) -> Fut,
    Fut: Future<Output = Outcome<P>>,
{
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let peer = Arc::new(open(task.clone()).await?);
        let figures = match task.phase {
            Phase::Load => load(task, &peer).await?,
            Phase::Pickup => pickup(task, &peer).await?,
            Phase::Lives => lives(task, &peer).await?,
        };
        let durability = peer.durability().await?;
        Ok(format!(
            r#"{{"peer":"{}","setting":"{}","durability":"{durability}",{figures}}}"#,
            task.peer, task.setting
        ))
    })
}

async fn load(task: &Task, peer: &Arc<impl Peer>) -> Outcome<String> {
    let (one, one_per_s) = produce(task, peer, 1).await?;
    let (many, many_per_s) = produce(task, peer, AT_ONCE).await?;
    let (bulk, bulk_per_s) = bulk(task, peer).await?;
    let jobs = one + many + bulk;
    let (drained, drain_per_s) = drain(task, peer, jobs).await?;
    let figures = [
        ("one_per_s", one_per_s),
        ("many_per_s", many_per_s),
        ("bulk_per_s", bulk_per_s),
        ("drain_per_s", drain_per_s),
    ];
    let figures = figures.map(|(name, figure)| format!(r#""{name}":{figure:.0}"#)).join(",");
    Ok(format!(r#"{figures},"enqueued":{jobs},"drained":{drained}"#))
}

/// Producers take the next job while there is one and time is left.
pub(crate) async fn produce(
    task: &Task,
    peer: &Arc<impl Peer>,
    producers: usize,
) -> Outcome<(usize, f64)> {
    let taken = Arc::new(AtomicUsize::new(0));
    let (began, limit, jobs) = (now(), task.limit, task.jobs);
    let tasks: Vec<_> = (0..producers)
        .map(|producer| {
            let (peer, taken) = (Arc::clone(peer), Arc::clone(&taken));
            tokio::spawn(async move {
                let mut acknowledged = 0;
                while began.elapsed() < limit && taken.fetch_add(1, Ordering::Relaxed) < jobs {
                    peer.enqueue(producer).await?;
                    acknowledged += 1;
                }
                Outcome::Ok(acknowledged)
            })
        })
        .collect();
    let mut all = 0;
    for task in tasks {
        all += task.await??;
    }
    Ok((all, rate(all, began.elapsed())))
}

async fn bulk(task: &Task, peer: &Arc<impl Peer>) -> Outcome<(usize, f64)> {
    let (mut done, began) = (0, now());
    while done < task.jobs && began.elapsed() < task.limit {
        let jobs = BULK.min(task.jobs - done);
        peer.enqueue_bulk(jobs).await?;
        done += jobs;
    }
    Ok((done, rate(done, began.elapsed())))
}

/// Works everything off; the clock stops when the store says that nothing is left, not when the
/// last handler has run.
async fn drain(task: &Task, peer: &Arc<impl Peer>, jobs: usize) -> Outcome<(usize, f64)> {
    let (ran, mut messages) = Ran::new();
    let (began, limit) = (now(), task.limit * 3);
    peer.work(ran).await?;
    let mut seen = 0;
    while seen < jobs {
        let wait = limit.saturating_sub(began.elapsed());
        match tokio::time::timeout(wait, messages.recv()).await {
            Ok(Some(_)) => seen += 1,
            Ok(None) => return Err("the handlers have gone".into()),
            Err(_) => return Ok((seen, rate(seen, began.elapsed()))),
        }
    }
    while peer.left().await? > 0 {
        if began.elapsed() > limit {
            return Err("all handlers have run, but the store says that jobs are left".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok((seen, rate(seen, began.elapsed())))
}

/// How many pickups are measured at most, and how many before them are not.
const PICKUPS: usize = 200;
const WARM_UP: usize = 10;
/// A job that is not started within this time counts as lost.
const STALLED: Duration = Duration::from_secs(10);

async fn pickup(task: &Task, peer: &Arc<impl Peer>) -> Outcome<String> {
    let (ran, mut messages) = Ran::new();
    peer.work(ran).await?;
    let (began, mut figures, mut stalls) = (now(), Vec::new(), 0);
    for at in 0..PICKUPS + WARM_UP {
        if began.elapsed() > task.limit * 3 && !figures.is_empty() {
            break;
        }
        // A pause that keeps step with no timer: 20 to 69 ms, the same for each contestant.
        let pause = 20 + (at as u64 * 37) % 50;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let enqueued = now();
        peer.enqueue(0).await?;
        let started = match tokio::time::timeout(STALLED, messages.recv()).await {
            Ok(started) => started.ok_or("the handlers have gone")?,
            // Reported, not hidden, beside what was measured before it.
            Err(_) => {
                stalls += 1;
                break;
            }
        };
        if at >= WARM_UP {
            figures.push(started.saturating_duration_since(enqueued).as_micros());
        }
    }
    figures.sort_unstable();
    let last = figures.len().saturating_sub(1);
    let at = |hundredths: usize| figures.get((figures.len() * hundredths / 100).min(last));
    let [p50, p99] = [50, 99].map(|part| at(part).copied().unwrap_or(0));
    let count = figures.len();
    Ok(format!(
        r#""pickup_p50_us":{p50},"pickup_p99_us":{p99},"pickups":{count},"pickup_stalls":{stalls}"#
    ))
}

#[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
fn rate(jobs: usize, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64().max(1e-9)
}
