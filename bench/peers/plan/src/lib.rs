//! The same work for every queue that is compared: N jobs of 100 bytes whose handlers do nothing.
//!
//! A program of a peer is called as `PROGRAM PEER SETTING PHASE FOLDER JOBS SECONDS` and prints one
//! JSON line. It does one phase in a folder of its own, then ends, so that peers can take turns and
//! none inherits what another has left behind. Time is bounded: a phase that does not get through
//! its jobs in this number of seconds is measured by how far it got.

mod lives;
mod measure;

use std::error::Error;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use measure::run;

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Number of tasks that enqueue at once, and of jobs that run at once.
pub const AT_ONCE: usize = 64;

/// Jobs per bulk enqueue.
pub const BULK: usize = 1_000;

/// Arguments of a program.
#[derive(Debug, Clone)]
pub struct Task {
    /// The peer, for programs with several.
    pub peer: String,
    /// How it is set up: `default`, `full`, or a name that its README explains.
    pub setting: String,
    /// The measurement of this run.
    pub phase: Phase,
    /// Empty folder for its files.
    pub folder: PathBuf,
    /// Number of jobs.
    pub jobs: usize,
    /// Time limit of an enqueueing phase; drain and pickup have three times as much.
    pub limit: Duration,
    /// The URL of an empty database, for peers on PostgreSQL.
    pub url: Option<String>,
}

/// The environment variable that holds the URL.
pub const URL: &str = "PEERS_POSTGRES";

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Enqueue one by one with one producer and with 64, in bulk, then work all of it off.
    Load,
    /// Measure the time until an idle queue starts a job.
    Pickup,
    /// Handlers run while 64 producers enqueue one by one, in one of several processes on one
    /// database.
    Lives,
}

impl Task {
    /// Reads the six arguments of a program.
    pub fn from_arguments(arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let words: Vec<String> = arguments.collect();
        let [peer, setting, phase, folder, jobs, seconds] = words.as_slice() else {
            return Err("wanted: PEER SETTING PHASE FOLDER JOBS SECONDS".into());
        };
        let phase = match phase.as_str() {
            "load" => Phase::Load,
            "pickup" => Phase::Pickup,
            "lives" => Phase::Lives,
            other => return Err(format!("phase is load, pickup or lives, not {other}").into()),
        };
        Ok(Self {
            peer: peer.clone(),
            setting: setting.clone(),
            phase,
            folder: folder.into(),
            jobs: jobs.parse()?,
            limit: Duration::from_secs(seconds.parse()?),
            url: std::env::var(URL).ok(),
        })
    }

    /// The URL of the database; an error if there is none.
    pub fn database(&self) -> Outcome<&str> {
        Ok(self.url.as_deref().ok_or("PEERS_POSTGRES is not set: run windlass-peers --postgres")?)
    }

    /// Whether every acknowledged job has to survive a power cut.
    pub fn is_full(&self) -> bool {
        self.setting == "full"
    }
}

/// A queue under comparison.
pub trait Peer: Send + Sync + 'static {
    /// What its settings promise once an enqueue is acknowledged; read back where it can be.
    fn durability(&self) -> impl Future<Output = Outcome<String>> + Send;

    /// Enqueues one job and waits until it is acknowledged; called by up to 64 producers at once.
    fn enqueue(&self, producer: usize) -> impl Future<Output = Outcome<()>> + Send;

    /// Enqueues this number of jobs the fastest way it documents.
    fn enqueue_bulk(&self, jobs: usize) -> impl Future<Output = Outcome<()>> + Send;

    /// Starts handlers, 64 jobs at once, that do nothing but note that they ran. They stay until
    /// the process ends.
    fn work(&self, ran: Ran) -> impl Future<Output = Outcome<()>> + Send;

    /// Number of unfinished jobs, read from its store.
    fn left(&self) -> impl Future<Output = Outcome<u64>> + Send;
}

/// Sends the instant at which a handler ran.
#[derive(Debug, Clone)]
pub struct Ran {
    tell: UnboundedSender<Instant>,
}

impl Ran {
    fn new() -> (Self, UnboundedReceiver<Instant>) {
        let (tell, messages) = unbounded_channel();
        (Self { tell }, messages)
    }

    /// Records that a handler has begun.
    pub fn note(&self) {
        let _ = self.tell.send(now());
    }
}

/// The payload: JSON text of 100 bytes with its quotes.
pub fn payload() -> String {
    "x".repeat(98)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}
