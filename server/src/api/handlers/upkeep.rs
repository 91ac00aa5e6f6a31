//! Upkeep: status, checks and backups of the store.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use windlass_core::store::{Reader, StoreError, WorkerRow};
use windlass_core::{Counts, FigureSet, QueueRow, Wall};

use crate::api::problem::{self, Problem};
use crate::api::snapshot::health;
use crate::api::wire::{
    Checkup, QueueSums, Rates, Status, StatusCounts, StoreSize, Time, WorkerSums,
};
use crate::app::{App, now};
use crate::http::body::Body;
use crate::http::router::{self, Answer, Call};
use crate::store::{CopyError, StoreBytes};

/// `GET /status`
pub(crate) async fn status(call: Call) -> Answer {
    call.query(&[])?;
    let app = &call.app;
    let seen = app.reads.read(|reader| Seen::read(reader)).await?;
    let bytes = app.store_bytes().await;
    router::ok(&seen.status(app, bytes))
}

/// The rows of one read; none of a job.
struct Seen {
    /// Time of the read, by the store's clock.
    now: Wall,
    queues: Vec<QueueRow>,
    oldest: Option<Wall>,
    next_due: Option<Wall>,
    workers: Vec<WorkerRow>,
    rates: Rates,
}

impl Seen {
    fn read(reader: &mut dyn Reader) -> Result<Self, StoreError> {
        let queues = reader.queues()?;
        let mut oldest = None;
        for row in queues.iter().filter(|row| row.total().get(windlass_core::View::Queued) > 0) {
            let found = reader.oldest_ready(&row.queue.name)?;
            oldest = oldest.into_iter().chain(found).min();
        }
        let (next_due, workers) = (reader.next_due()?, reader.workers()?);
        let now = reader.now(now())?;
        let (last, window) = FigureSet::last_minute(reader, now)?;
        let rates = Rates::of(&last.sum(), window);
        Ok(Self { now, queues, oldest, next_due, workers, rates })
    }

    fn status(self, app: &App, bytes: StoreBytes) -> Status {
        let now = self.now;
        let paused = self.queues.iter().filter(|row| row.queue.is_paused());
        let counts = self.queues.iter().fold(Counts::default(), |sum, row| sum.plus(&row.total()));
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            now: Time(now),
            health: health(&app.health()),
            counts: StatusCounts::of(&counts),
            retrying: counts.retrying(),
            oldest_ready_age_ms: self.oldest.map(|oldest| now.since(oldest).get()),
            next_due: self.next_due.map(Time),
            queues: QueueSums {
                total: self.queues.len(),
                paused: paused.map(|row| row.queue.name.as_str().into()).collect(),
            },
            workers: sums(&self.workers, now),
            rates: self.rates,
            store: StoreSize { path: app.store.place(), bytes: bytes.store, wal_bytes: bytes.wal },
        }
    }
}

fn sums(workers: &[WorkerRow], now: Wall) -> WorkerSums {
    let mut sums = WorkerSums::default();
    for row in workers {
        if row.is_alive(now) {
            sums.alive += 1;
            sums.running += row.running.len();
        } else {
            sums.stale += 1;
        }
    }
    sums
}

/// `GET /doctor`
pub(crate) async fn doctor(call: Call) -> Answer {
    call.query(&[])?;
    if call.head {
        return Ok(head("application/json"));
    }
    let app = &call.app;
    let started = Instant::now();
    let queues = app.reads.read(|reader| reader.queues()).await?;
    let counts = queues.iter().fold(Counts::default(), |sum, row| sum.plus(&row.total()));
    let (maintenance, pages_checked) = (app.maintenance.clone(), app.maintenance.checks_pages());
    let check = move || Ok((maintenance.notices()?, maintenance.verify()?));
    let (checked, _) = alone(&app.upkeep, check).await?;
    let (notices, found) = checked.map_err(windlass_runtime_tokio::ReadError::Store)?;
    let shown = found.iter().take(Checkup::SHOWN).map(ToString::to_string).collect();
    router::ok(&Checkup {
        ok: found.is_empty(),
        jobs: windlass_core::View::ALL.iter().map(|view| counts.get(*view)).sum(),
        findings: shown,
        more: found.len().saturating_sub(Checkup::SHOWN),
        notices,
        pages_checked,
        took_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// The answer to HEAD: nothing is read or copied for it.
fn head(content_type: &'static str) -> Response<Body> {
    // Of a length that is not known.
    let (_, nothing) = mpsc::channel(1);
    let mut response = Response::new(Body::stream(nothing));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Runs work on the whole store while no other such work runs. It goes on if the client leaves, and
/// others are refused until it is over.
async fn alone<T: Send + 'static>(
    upkeep: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, OwnedSemaphorePermit), Problem> {
    let turn = Arc::clone(upkeep).try_acquire_owned().map_err(|_| {
        let detail = "a check or a backup runs already; try again when it has ended";
        Problem::new(problem::OVERLOADED, detail)
    })?;
    let done = tokio::task::spawn_blocking(move || (work(), turn)).await;
    done.map_err(|error| broken(&error.to_string()))
}

fn broken(why: &str) -> Problem {
    Problem::new(problem::STORE_UNAVAILABLE, why)
}

/// `GET /backup`: the copy is made first, beside the store, and has no name while it is sent.
pub(crate) async fn backup(call: Call) -> Answer {
    call.query(&[])?;
    if call.head {
        return Ok(head("application/octet-stream"));
    }
    let app = &call.app;
    let (maintenance, store) = (app.maintenance.clone(), app.store.clone());
    let copied = alone(&app.upkeep, move || {
        let file = maintenance.unnamed_copy(&store)?;
        let bytes = file.metadata().map_err(|error| CopyError::Failed(error.to_string()))?.len();
        Ok((file, bytes))
    });
    let (copied, turn) = copied.await?;
    let (file, bytes) = copied.map_err(|error: CopyError| {
        let kind = match &error {
            CopyError::NoRoom(_) => problem::STORE_FULL,
            CopyError::NotAFile => problem::NOT_A_FILE,
            CopyError::Failed(_) => problem::STORE_UNAVAILABLE,
        };
        Problem::new(kind, format!("no copy could be made: {error}"))
    })?;
    let (sender, receiver) = mpsc::channel(4);
    // The copy takes space until its last byte is sent: the next one waits for that.
    tokio::task::spawn_blocking(move || {
        send(file, &sender);
        drop(turn);
    });
    let mut response = Response::new(Body::stream(receiver));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A copy that breaks off is shorter than this, so no client takes it for whole.
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    Ok(response)
}

/// Sends a file piece by piece, no faster than the client takes it.
fn send(mut file: std::fs::File, to: &mpsc::Sender<Bytes>) {
    const PIECE: usize = 256 * 1024;
    loop {
        let mut piece = vec![0; PIECE];
        match file.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => {
                piece.truncate(read);
                // The client has left.
                if to.blocking_send(piece.into()).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a backup was cut short: its copy could not be read");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn work_that_its_client_has_abandoned_still_keeps_other_work_waiting() {
        let upkeep = Arc::new(Semaphore::new(1));
        let (begun, is_begun) = channel();
        let (end, may_end) = channel::<()>();
        let mut abandoned = Box::pin(alone(&upkeep, move || {
            begun.send(()).expect("the test waits for it");
            may_end.recv()
        }));
        let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(abandoned.as_mut().poll(cx)));
        assert!(poll.await.is_pending());
        is_begun.recv().expect("it begins");
        drop(abandoned);
        for _ in 0..20 {
            let refused = alone(&upkeep, || ()).await.expect_err("another one is under way");
            assert_eq!(refused.kind(), problem::OVERLOADED);
        }
        end.send(()).expect("it waits for it");
        // It gives its turn back when it is over, and not before.
        drop(upkeep.acquire().await.expect("it is open"));
        assert!(alone(&upkeep, || ()).await.is_ok());
    }
}
