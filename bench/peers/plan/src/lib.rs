//! The same work for every queue that is compared: N jobs of 100 bytes whose handlers do nothing.
//!
//! A program of a peer is called as `PROGRAM PEER SETTING PHASE FOLDER JOBS SECONDS` and prints one
//! JSON line. It does one phase in a folder of its own, then ends, so that peers can take turns and
//! none inherits what another has left behind. Time is bounded: a phase that does not get through
//! its jobs in so many seconds is told by how far it got.

mod measure;

use std::error::Error;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use measure::run;

/// What anything here comes to.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How many tasks enqueue at once, and how many jobs run at once.
pub const AT_ONCE: usize = 64;

/// How many jobs a bulk enqueue takes at a time.
pub const BULK: usize = 1_000;

/// What a program is asked to do.
#[derive(Debug, Clone)]
pub struct Task {
    /// Which peer, for programs that hold several.
    pub peer: String,
    /// How it is set up: `default`, `full`, or a name that its README explains.
    pub setting: String,
    /// What to measure.
    pub phase: Phase,
    /// A folder of its own, empty.
    pub folder: PathBuf,
    /// How many jobs.
    pub jobs: usize,
    /// How long an enqueueing phase may take; a drain and pickups have three times as long.
    pub limit: Duration,
}

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Enqueue one by one with one producer and with 64, in bulk, then work all of it off.
    Load,
    /// How soon an idle queue starts a job.
    Pickup,
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
            other => return Err(format!("phase is load or pickup, not {other}").into()),
        };
        Ok(Self {
            peer: peer.clone(),
            setting: setting.clone(),
            phase,
            folder: folder.into(),
            jobs: jobs.parse()?,
            limit: Duration::from_secs(seconds.parse()?),
        })
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

    /// Enqueues so many jobs the fastest way it documents.
    fn enqueue_bulk(&self, jobs: usize) -> impl Future<Output = Outcome<()>> + Send;

    /// Starts handlers, 64 jobs at once, that do nothing but note that they ran. They stay until
    /// the process ends.
    fn work(&self, ran: Ran) -> impl Future<Output = Outcome<()>> + Send;

    /// How many jobs are not finished, as its store says.
    fn left(&self) -> impl Future<Output = Outcome<u64>> + Send;
}

/// What a handler notes.
#[derive(Debug, Clone)]
pub struct Ran {
    tell: UnboundedSender<Instant>,
}

impl Ran {
    fn new() -> (Self, UnboundedReceiver<Instant>) {
        let (tell, told) = unbounded_channel();
        (Self { tell }, told)
    }

    /// A handler has begun.
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
