//! Windlass on tokio: the queue as a library.
//!
//! Choose a store, register typed handlers, start, enqueue, shut down. A job is stored when its
//! enqueue returns a receipt. It then runs at least once, until it completes, fails for good or is
//! cancelled.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use windlass_runtime_tokio::{Context, JobError, NewJob, Runtime, seconds};
//! use windlass_store_memory::MemoryStore;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Email { to: String }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let queue = Runtime::builder(MemoryStore::new())
//!     .handler("email", |mail: Email, ctx: Context| async move {
//!         if !mail.to.contains('@') {
//!             return Err(JobError::permanent(format!("{} is not an address", mail.to)));
//!         }
//!         println!("job {} attempt {}: mail to {}", ctx.id(), ctx.attempt(), mail.to);
//!         Ok(())
//!     })
//!     .start()?;
//!
//! let email = Email { to: "ada@example.org".into() };
//! let receipt = queue.enqueue(NewJob::of("email", &email)?.priority(5)).await?;
//! let job = queue.wait(receipt.id).await?;
//! assert_eq!(job.job.state.name().as_str(), "done");
//! queue.shutdown(seconds(30)).await;
//! # Ok(())
//! # }
//! ```
//!
//! * [`Runtime`], [`Builder`]: configure and start.
//! * [`Queue`]: the handle: enqueue, read, command, shut down. [`Reads`]: reads alone.
//! * [`NewJob`], [`Context`], [`JobError`]: a job to enqueue; the context and errors of a handler.
//! * [`testing`], [`ManualClock`]: tests that control time.
//! * [`Metrics`], [`Health`], [`EventStream`]: monitoring.
//!
//! The [guide](../../book/LIBRARY.html) has more, and [how to test](../../book/TESTING.html) code
//! that uses this: `docs/LIBRARY.md` and `docs/TESTING.md` in the repository, which `mdbook build`
//! puts beside these pages.
#![forbid(unsafe_code)]

mod builder;
mod clock;
mod context;
mod deliver;
mod error;
mod fingerprint;
mod group_commit;
mod handler;
mod lease_timer;
mod lifecycle;
mod metrics;
mod new_job;
mod pool;
mod queue;
mod reads;
mod shared;
mod supervise;
mod sync;
pub mod testing;
mod watch;
mod writer;

pub use builder::{Builder, Runtime};
pub use clock::{Clock, ManualClock, Sleep, SystemClock};
pub use context::Context;
pub use error::{
    CommandError, EnqueueError, ReadError, ReportError, StartError, Unserved, WaitError,
};
pub use fingerprint::fingerprint;
pub use handler::{BoxError, IntoVerdict, JobError};
pub use lifecycle::Report;
pub use metrics::{Attempts, BUCKETS, Histogram, Metrics, Refusals};
pub use new_job::{InvalidJob, NewJob, days, hours, minutes, seconds};
pub use queue::{Queue, Receipt};
pub use reads::Reads;
pub use supervise::Health;
pub use watch::{Event, EventStream};
pub use windlass_core as core;

/// The programs in these documents are compiled, and run unless they say `no_run`.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/LIBRARY.md")]
    struct Library;

    #[doc = include_str!("../../docs/TESTING.md")]
    struct Testing;
}
