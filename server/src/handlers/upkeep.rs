//! Upkeep: how the store is doing, whether it agrees with itself, a copy of it.

use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response};
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::Instant;
use windlass_core::store::{Reader, StoreError, WorkerRow};
use windlass_core::{Counts, QueueRow, Wall};
use windlass_runtime_tokio::Health;

use crate::app::{App, now};
use crate::body::Body;
use crate::metrics::length;
use crate::problem::{self, Problem};
use crate::router::{self, Answer, Call};
use crate::wire::{Checkup, QueueSums, Rates, Status, StatusCounts, StoreSize, Time, WorkerSums};

/// `GET /status`
pub(crate) async fn status(call: Call) -> Answer {
    call.query(&[])?;
    let app = &call.app;
    let seen = app.queue.read(Seen::read).await?;
    router::ok(&seen.status(app, now()))
}

/// What one read finds out. No job is looked at.
struct Seen {
    queues: Vec<QueueRow>,
    oldest: Option<Wall>,
    next_due: Option<Wall>,
    workers: Vec<WorkerRow>,
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
        Ok(Self { queues, oldest, next_due, workers })
    }

    fn status(&self, app: &App, now: Wall) -> Status {
        let paused = self.queues.iter().filter(|row| row.queue.paused);
        let counts = self.queues.iter().fold(Counts::default(), |sum, row| sum.plus(&row.total()));
        let health = app.queue.health();
        let mut wal = app.store.clone().into_os_string();
        wal.push("-wal");
        Status {
            version: env!("CARGO_PKG_VERSION"),
            now: Time(now),
            health: match (&health, health.cause()) {
                (Health::Good, _) => "good".into(),
                (_, Some(cause)) => cause.to_string(),
                (other, None) => format!("{other:?}"),
            },
            counts: StatusCounts::of(&counts),
            oldest_ready_age_ms: self.oldest.map(|oldest| now.since(oldest).get()),
            next_due: self.next_due.map(Time),
            queues: QueueSums {
                total: self.queues.len(),
                paused: paused.map(|row| row.queue.name.as_str().into()).collect(),
            },
            workers: sums(&self.workers, now),
            // A command that works on the store itself has counted nothing.
            rates: (!app.trusted).then(|| rates(app, now)),
            store: StoreSize {
                path: app.store.display().to_string(),
                bytes: length(&app.store),
                wal_bytes: length(Path::new(&wal)),
            },
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

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rates(app: &App, now: Wall) -> Rates {
    let (sum, window_ms) = app.hub.last_minute(now);
    let rate = |count: u64| (count as f64 * 1e6 / window_ms as f64).round() / 1e3;
    Rates {
        window_ms,
        enqueued_per_s: rate(sum.enqueued),
        started_per_s: rate(sum.started),
        done_per_s: rate(sum.done),
        failed_per_s: rate(sum.failed),
    }
}

/// `GET /doctor`
pub(crate) async fn doctor(call: Call) -> Answer {
    call.query(&[])?;
    let app = &call.app;
    let _alone = alone(app)?;
    let started = Instant::now();
    let counts = app.queue.counts().await?;
    let (keeper, pages_checked) = (app.keeper.clone(), app.keeper.checks_pages());
    let found = tokio::task::spawn_blocking(move || keeper.verify()).await;
    let found = found.map_err(|error| broken(&error.to_string()))?;
    let found = found.map_err(windlass_runtime_tokio::ReadError::Store)?;
    let shown = found.iter().take(Checkup::SHOWN).map(ToString::to_string).collect();
    router::ok(&Checkup {
        ok: found.is_empty(),
        jobs: windlass_core::View::ALL.iter().map(|view| counts.get(*view)).sum(),
        findings: shown,
        more: found.len().saturating_sub(Checkup::SHOWN),
        pages_checked,
        took_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// One such request at a time: each reads the whole store.
fn alone(app: &App) -> Result<SemaphorePermit<'_>, Problem> {
    app.upkeep.try_acquire().map_err(|_| {
        let detail = "a check or a backup is under way already; try again when it is over";
        Problem::new(problem::OVERLOADED, detail)
    })
}

fn broken(why: &str) -> Problem {
    Problem::new(problem::STORE_UNAVAILABLE, why)
}

/// `GET /backup`: the copy is made first, beside the store, and has no name while it is sent.
pub(crate) async fn backup(call: Call) -> Answer {
    call.query(&[])?;
    let app = &call.app;
    let _alone = alone(app)?;
    let (keeper, store) = (app.keeper.clone(), app.store.clone());
    let copied = tokio::task::spawn_blocking(move || copy(&keeper, &store)).await;
    let copied = copied.map_err(|error| broken(&error.to_string()))?;
    let (file, bytes) = copied.map_err(|why| broken(&format!("no copy could be made: {why}")))?;
    let (sender, receiver) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || send(file, &sender));
    let mut response = Response::new(Body::stream(receiver));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A copy that breaks off is shorter than this, so nobody takes it for whole.
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    Ok(response)
}

fn copy(keeper: &crate::keeper::Keeper, store: &Path) -> Result<(std::fs::File, u64), String> {
    let name = format!(".backup-{:016x}", getrandom::u64().map_err(|error| error.to_string())?);
    let directory = store.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    let path = directory.join(name);
    keeper.backup(&path)?;
    let opened = std::fs::File::open(&path);
    let removed = std::fs::remove_file(&path);
    let file = opened.map_err(|error| error.to_string())?;
    removed.map_err(|error| error.to_string())?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    Ok((file, bytes))
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
                tracing::warn!(%error, "a backup broke off: its copy could not be read");
                return;
            }
        }
    }
}
