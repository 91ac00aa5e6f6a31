//! What can happen next, and who waits for what.

use windlass_core::machine::{Answer, Request};
use windlass_core::{LeaseToken, RequestId, Verdict};

/// Something that will happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A process boots.
    Boot(usize),
    /// A machine wants to be called.
    Wake(usize, u64),
    /// The store does what a process has asked for.
    Execute(usize, u64),
    /// A process hears from the store.
    Answer(usize, u64),
    /// A local handler ends.
    RunEnds(usize, u64, LeaseToken, End),
    /// A process gets a signal.
    Signal(usize, u64, Signal),
    /// A message reaches a process.
    Deliver(usize, RequestId),
    /// An answer reaches whoever asked.
    Reply(Who, Box<Answer>),
    /// A producer wants to enqueue.
    Produce(usize),
    /// A producer has waited long enough for an answer.
    GiveUp(usize, u32),
    /// A remote worker looks around.
    Remote(usize),
    /// A remote worker sends a heartbeat.
    RemoteBeat(usize, LeaseToken),
    /// A remote handler ends.
    RemoteEnds(usize, LeaseToken),
    /// A remote worker reports, for the so-and-so-many-th time.
    RemoteReport(usize, LeaseToken, u32),
    /// An operator does something.
    Operate,
    /// Something may go wrong.
    Trouble,
    /// Nothing goes wrong any more.
    Heal,
    /// Is everything done?
    Look,
}

/// How a local handler ends.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// With a verdict.
    Says(Verdict),
    /// It was stopped.
    Stopped,
    /// It takes its process with it.
    Crash,
}

/// A signal to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Shut down, and wait so long for what runs.
    Drain(u64),
    /// Shut down now.
    Force,
}

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// A producer, for this wish.
    Producer(usize),
    /// A remote worker that polls.
    Poll(usize, u64),
    /// A remote worker that sends a heartbeat.
    Beat(usize, LeaseToken),
    /// A remote worker that reports.
    Report(usize, LeaseToken),
    /// An operator.
    Operator,
}

/// A message that was sent and not answered yet.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) who: Who,
    pub(super) request: Request,
}
