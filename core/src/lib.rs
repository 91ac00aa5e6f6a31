//! Windlass core: every rule of the job queue, without a clock and without I/O.
//!
//! Three layers, each usable alone:
//!
//! * **rules** ([`transition`], [`RetryPolicy`], [`explain()`]): total functions over plain data;
//! * **[`machine`]**: the dispatcher as a state machine that is fed inputs and asked for effects;
//! * **[`store`]**: the contract a store keeps, and [`Apply`], which decides a batch of commands on
//!   the rows that a store finds. It is the only place where commands meet stored jobs.
//!
//! Nothing here reads a clock, draws a random number or blocks: time comes in as [`Now`] or
//! [`Wall`], jitter is a hash of the lease token, and the driver does the waiting.
//!
//! The book explains the [words](../../book/CONCEPTS.html), what is
//! [promised](../../book/GUARANTEES.html), and the [states](../../book/STATE_MACHINE.html) of a
//! job; it has the [map of the code](../../book/ARCHITECTURE.html), too.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod apply;
mod attempt;
mod bounded;
pub mod bulk;
mod demand;
mod error_group;
mod explain;
mod figures;
mod flow;
mod gate;
mod id;
mod idempotency;
mod job;
pub mod limits;
pub mod machine;
mod name;
mod new_job;
mod queue;
mod rank;
mod rate;
mod rejected;
mod retry;
pub mod search;
pub mod store;
mod text;
mod time;
mod transition;

pub use apply::{Apply, Step as ApplyStep};
pub use attempt::{Attempt, AttemptOutcome};
pub use bounded::{
    Aging, Delay, JobTimeout, JobsPerSecond, KindConcurrency, LeaseLength, MaxQueued, MaxRetries,
    MaxRunning, OutOfRange, Priority, RateBurst, RateLimit, RatePeriod,
};
pub use demand::{Demand, DemandError, Kinds, Queues};
pub use error_group::{
    BadGroup, ErrorGroup, ErrorText, GroupId, GroupRow, GroupTally, Hours, QueueShare, Slot, Title,
    TitlePart,
};
pub use explain::{Explanation, Reason, Surroundings, explain};
pub use figures::{BadFigures, FigureSet, Figures, Gauge, Gauges, Span, Times};
pub use flow::{BadFlow, Flow, TooManyKindLimits};
pub use gate::{Gate, InUse, KindLimits, Tats, Usage};
pub use id::{BatchId, BulkId, Epoch, JobId, LeaseToken, ParseIdError, ProcessId, RequestId};
pub use idempotency::{Fingerprint, FingerprintBuilder, Idempotency, KeyRecord, KeyRuling};
pub use job::{Counted, IndexKey, Job, LastVerdict, Lease, State, StateName, View};
pub use name::{
    IdempotencyKey, Kind, NameError, NameProblem, QueueName, SettingKey, SettingValue, WorkerId,
    WorkerVersion,
};
pub use new_job::{EnqueueRefused, NewJob, Policy, Receipt, Terms, When};
pub use queue::{Counts, Pause, Queue, QueueRow, QueueSettings};
pub use rank::Rank;
pub use rate::{Rate, Tat};
pub use rejected::{Rejected, StaleReason};
pub use retry::{RetryError, RetryPolicy, Strategy};
pub use text::{Excerpt, Payload, PayloadError};
pub use time::{Millis, Mono, Now, Wall};
pub use transition::{Claim, Event, EventName, Failure, FailureKind, Step, Verdict, transition};
