//! What can happen next, and who waits for what.

use std::fmt;

use windlass_core::machine::{Answer, Request};
use windlass_core::store::Settle;
use windlass_core::{LeaseToken, NewJob, RequestId, Verdict};

use crate::ledger::Said;

/// Something that will happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A process boots.
    Boot(usize),
    /// A machine wants to be called.
    Wake(usize, u64),
    /// The store does what a process has asked for.
    Execute(usize, u64),
    /// A transaction of a process takes its next step.
    Step(usize, u64),
    /// The store ends a transaction whose process stands still, by the number of its batch.
    CutOff(usize, u64, u64),
    /// A transaction that its process has left comes to its end.
    Land(u64),
    /// A transaction that belongs to no process is rolled back.
    Release(u64),
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
    Heartbeat(usize, LeaseToken),
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

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Producer(wish) => write!(f, "producer with wish {wish}"),
            Self::Poll(at, _) => write!(f, "remote {at}"),
            Self::Heartbeat(at, token) | Self::Report(at, token) => {
                write!(f, "remote {at} of #{token}")
            }
            Self::Operator => f.write_str("operator"),
        }
    }
}

/// What is asked, for a trace.
pub(super) fn request_words(request: &Request) -> String {
    match request {
        Request::Enqueue(new) => format!("enqueue {}", new_words(new)),
        Request::EnqueueMany(many) => {
            let shown: Vec<String> = many.iter().take(8).map(new_words).collect();
            format!("enqueue {} jobs: {}", many.len(), shown.join("; "))
        }
        Request::Settle(settle) => settle_words(settle),
        Request::SettleMany(many) => many.iter().map(settle_words).collect::<Vec<_>>().join("; "),
        Request::Heartbeat(beat) => format!("heartbeat of #{}", beat.token),
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
    format!("report of #{}: {:?}", settle.token, Said::of(&settle.verdict))
}

/// What is answered, for a trace.
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
