//! Snapshots for all viewers: one each second while there are viewers, the same for all of them.
//! Without viewers one is made every ten seconds, for the gauges in the store.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::time::{Instant, timeout};
use windlass_core::machine::Input;
use windlass_core::{Millis, Wall};
use windlass_runtime_tokio::ReadError;

use crate::api::history::{SAMPLED, Samples};
use crate::api::problem::Problem;
use crate::api::snapshot::{Maker, Seen};
use crate::app::{App, Stage};

/// Interval of the snapshots.
const EVERY: Duration = Duration::from_secs(1);
/// A request for a snapshot gets the last one if it is younger than this.
const FRESH: Duration = Duration::from_millis(900);
/// Interval of history samples without viewers.
const IDLE_SAMPLE_INTERVAL: Duration = Duration::from_millis(SAMPLED.get());
/// Minimum interval of gauges in the store: a little less than that of samples.
const GAUGED: Millis = Millis::new(9_500);

/// The snapshots of a server.
#[derive(Debug)]
pub(crate) struct Feed {
    made: watch::Sender<Option<Arc<Made>>>,
    maker: Mutex<Maker>,
    /// When this server last stored gauges.
    noted: std::sync::Mutex<Option<Wall>>,
    /// Notified when a viewer connects.
    wanted: Notify,
}

/// A snapshot as events, in full and as what changed.
#[derive(Debug)]
pub(crate) struct Made {
    /// Counts snapshots: a viewer that missed one needs a full one.
    number: u64,
    at: Instant,
    pub(crate) full: Bytes,
    delta: Bytes,
}

impl Feed {
    pub(crate) fn new() -> Self {
        let maker = Mutex::new(Maker::default());
        let noted = std::sync::Mutex::default();
        Self { made: watch::Sender::new(None), maker, noted, wanted: Notify::new() }
    }

    /// Makes snapshots until the server ends.
    pub(crate) async fn run(app: Arc<App>) {
        tokio::select! {
            () = app.feed.make_all(&app) => {}
            () = app.closing.reached(Stage::Draining) => {}
        }
    }

    async fn make_all(&self, app: &App) {
        loop {
            let started = Instant::now();
            match self.make(app).await {
                Ok(_) => {}
                Err(ReadError::Stopped) => return,
                Err(error) => tracing::debug!(%error, "no snapshot: the store cannot be read"),
            }
            if self.made.receiver_count() > 0 {
                tokio::time::sleep_until(started + EVERY).await;
            } else {
                // A new viewer does not wait for the next sample.
                let _ = timeout(IDLE_SAMPLE_INTERVAL, self.wanted.notified()).await;
            }
        }
    }

    /// A snapshot that is no older than a second.
    pub(crate) async fn latest(&self, app: &App) -> Result<Arc<Made>, ReadError> {
        let known = self.made.borrow().clone();
        match known.filter(|made| made.at.elapsed() < FRESH) {
            Some(made) => Ok(made),
            None => self.make(app).await,
        }
    }

    async fn make(&self, app: &App) -> Result<Arc<Made>, ReadError> {
        let mut maker = self.maker.lock().await;
        let known = maker.known();
        let seen = app.reads.read(move |reader| Seen::read(reader, &known)).await?;
        let samples = seen.samples();
        self.note(app, &seen, &samples);
        app.history.add(seen.now, samples);
        let bytes = app.store_bytes().await;
        let pair = maker.make(app, &seen, bytes);
        let number = self.made.borrow().as_ref().map_or(0, |made| made.number) + 1;
        let (full, delta) = (written(&pair.full), written(&pair.delta));
        let made = Arc::new(Made { number, at: Instant::now(), full, delta });
        self.made.send_replace(Some(Arc::clone(&made)));
        Ok(made)
    }

    /// Stores the gauges of queued and running jobs, unless a server did in the last ten seconds.
    fn note(&self, app: &App, seen: &Seen, samples: &Samples) {
        let Some(queue) = &app.queue else { return };
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let last = (*noted).max(seen.gauged_at());
        if last.is_none_or(|last| last.distance(seen.now) >= GAUGED) {
            *noted = Some(seen.now);
            queue.reconfigure(Input::Gauges(samples.gauges()));
        }
    }

    /// Sends snapshots to one viewer until it leaves: a full one, then what changed.
    pub(crate) async fn send(&self, app: &App, sender: &mpsc::Sender<Bytes>) {
        let mut made = self.made.subscribe();
        self.wanted.notify_one();
        let Ok(first) = self.latest(app).await else { return };
        made.mark_unchanged();
        let mut last = first.number;
        if sender.send(event(&first.full)).await.is_err() {
            return;
        }
        while made.changed().await.is_ok() {
            let Some(next) = made.borrow_and_update().clone() else { continue };
            if next.number <= last {
                continue;
            }
            let data = if next.number == last + 1 { &next.delta } else { &next.full };
            last = next.number;
            if sender.send(event(data)).await.is_err() {
                return;
            }
        }
    }
}

fn written(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

fn event(data: &Bytes) -> Bytes {
    let mut event = Vec::with_capacity(data.len() + 24);
    event.extend_from_slice(b"event: snapshot\ndata: ");
    event.extend_from_slice(data);
    event.extend_from_slice(b"\n\n");
    event.into()
}

impl Feed {
    /// The answer to `GET /snapshot`.
    pub(crate) async fn full(&self, app: &App) -> Result<Bytes, Problem> {
        Ok(self.latest(app).await?.full.clone())
    }
}
