//! Events of the world, and requests that wait for an answer.

use std::fmt;

use windlass_core::machine::{Answer, Request};
use windlass_core::store::Settle;
use windlass_core::{LeaseToken, NewJob, RequestId, Verdict};

use crate::ledger::VerdictKind;

/// A future event. Its first number is that of the process or client, the second the boot of the
/// process.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A process boots.
    Boot(usize),
    /// The wake-up of a machine is due.
    Wake(usize, u64),
    /// The store executes the call of a process.
    Execute(usize, u64),
    /// A transaction of a process takes its next step.
    Step(usize, u64),
    /// The store ends the transaction of a suspended process; the last number is its batch.
    CutOff(usize, u64, u64),
    /// A transaction whose process is gone is committed or rolled back.
    Land(u64),
    /// A transaction that belongs to no process is rolled back.
    Release(u64),
    /// The store answers a process.
    Answer(usize, u64),
    /// A local handler ends.
    RunEnds(usize, u64, LeaseToken, End),
    /// A process gets a signal.
    Signal(usize, u64, Signal),
    /// A message reaches a process.
    Deliver(usize, RequestId),
    /// An answer reaches the client that asked.
    Reply(Sender, Box<Answer>),
    /// A producer enqueues.
    Produce(usize),
    /// A producer's wait for an answer times out.
    GiveUp(usize, u32),
    /// A remote worker polls.
    Remote(usize),
    /// A remote worker sends a heartbeat.
    RemoteBeat(usize, LeaseToken),
    /// A remote handler ends.
    RemoteEnds(usize, LeaseToken),
    /// A remote worker reports; the last number counts its tries.
    RemoteReport(usize, LeaseToken, u32),
    /// An operator sends a command.
    Operate,
    /// Faults are drawn.
    Faults,
    /// The phase with faults ends.
    Heal,
    /// Checks whether everything is done.
    Look,
}

/// How a local handler ends.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// It ends by itself, with this verdict.
    Says(Verdict),
    /// It was stopped, and returns no verdict.
    Stopped,
    /// The process crashes with it.
    Crash,
}

/// A signal to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Shut down, with this many ms for running jobs.
    Drain(u64),
    /// Shut down now.
    Force,
}

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// A producer; the number is that of its submission.
    Producer(usize),
    /// A remote worker that polls.
    Poll(usize, u64),
    /// A remote worker that sends a heartbeat.
    Heartbeat(usize, LeaseToken),
    /// A remote worker that reports.
    Report(usize, LeaseToken),
    /// An operator's command.
    Operator,
}

/// A request without an answer yet.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) who: Sender,
    pub(super) request: Request,
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Producer(submission) => write!(f, "producer with submission {submission}"),
            Self::Poll(at, _) => write!(f, "remote {at}"),
            Self::Heartbeat(at, token) | Self::Report(at, token) => {
                write!(f, "remote {at} of #{token}")
            }
            Self::Operator => f.write_str("operator"),
        }
    }
}

/// Describes a request in the trace.
pub(super) fn request_words(request: &Request) -> String {
    match request {
        Request::Enqueue(new) => format!("enqueue {}", new_words(new)),
        Request::EnqueueMany(many) => {
            let shown: Vec<String> = many.iter().take(8).map(new_words).collect();
            format!("enqueue {} jobs: {}", many.len(), shown.join("; "))
        }
        Request::Settle(settle) => settle_words(settle),
        Request::SettleMany(many) => many.iter().map(settle_words).collect::<Vec<_>>().join("; "),
        Request::Heartbeat(heartbeat) => format!("heartbeat of #{}", heartbeat.token),
        Request::Admin(command) => format!("{command:?}"),
        Request::Poll(poll) => {
            format!("{} wants {}, waits {}", poll.worker.id, poll.worker.slots, poll.wait)
        }
    }
}

fn new_words(new: &NewJob) -> String {
    let key = new.idempotency.as_ref().map_or(String::new(), |idem| format!(", {}", idem.key));
    format!("{:?} to {} as {}, {:?}{key}", new.payload, new.queue, new.kind, new.when)
}

fn settle_words(settle: &Settle) -> String {
    format!("report of #{}: {:?}", settle.token, VerdictKind::of(&settle.verdict))
}

/// Describes an answer in the trace.
pub(super) fn answer_words(answer: &Answer) -> String {
    match answer {
        Answer::Enqueued(Ok(receipt)) if receipt.duplicate => format!("already #{}", receipt.id),
        Answer::Enqueued(Ok(receipt)) => format!("stored as #{}", receipt.id),
        Answer::Enqueued(Err(refused)) => format!("refused: {refused}"),
        Answer::Settled(Ok(state)) => format!("now {state}"),
        Answer::Settled(Err(refused)) | Answer::LeaseExtended(Err(refused)) => refused.to_string(),
        Answer::Admin(Err(refused)) => refused.to_string(),
        Answer::Jobs(runs) => {
            let tokens = runs.iter().map(|run| format!("#{}", run.job.token()));
            format!("jobs {}", tokens.collect::<Vec<_>>().join(" "))
        }
        Answer::Refused(refused) => format!("refused: {refused}"),
        other => format!("{other:?}"),
    }
}
