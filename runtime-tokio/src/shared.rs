//! The state that the writer thread, the tasks and the handles of one runtime share, and how a
//! caller sends a request and waits for its answer.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Wake};

use tokio::sync::{Notify, watch};
use windlass_core::machine::{self, Answer, Input, Refused, Request, StopReason};
use windlass_core::store::{Cause, Change, Durability};
use windlass_core::{LeaseToken, Millis, Mono, RequestId, WorkerId};

use crate::Clock;
use crate::context::{Attempt, RunningJob};
use crate::error::Unserved;
use crate::lease_timer::LeaseTimer;
use crate::lifecycle::Report;
use crate::metrics::{TaskFigures, WriterFigures};
use crate::reads::Readers;
use crate::sync::{Admission, Mailbox, Mutex, NotAdmitted, Outbox, Reply, Slots, Weight, lock};
use crate::testing::Ran;
use crate::watch::{Events, Watchers};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mailbox: Mailbox<Mail>,
    pub(crate) outbox: Outbox<Out>,
    pub(crate) slots: Slots<RunningJob>,
    /// The callers whose requests are in the machine.
    pub(crate) tickets: Mutex<Tickets>,
    /// The attempts given to workers, for stop signals. Ended ones are removed in bulk.
    pub(crate) attempts: Mutex<BTreeMap<LeaseToken, Weak<Attempt>>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) watchers: Watchers,
    pub(crate) events: Events,
    /// Changes of jobs that wait in the outbox for the delivery task.
    pub(crate) undelivered_changes: AtomicUsize,
    pub(crate) durability: CurrentDurability,
    /// The id under which this process holds leases.
    pub(crate) worker: WorkerId,
    pub(crate) has_handlers: bool,
    /// The configured number of workers.
    pub(crate) workers: AtomicUsize,
    /// Set by `Queue::stop_worker`, in any process.
    pub(crate) stop_asked: watch::Sender<bool>,
    /// When the runtime ends at the latest, once it drains.
    pub(crate) drain: watch::Sender<Option<Mono>>,
    pub(crate) lease_timer: LeaseTimer,
    pub(crate) stop_grace: Millis,
    pub(crate) force_grace: Millis,
    pub(crate) store_timeout: Millis,
    /// Number of `Queue` handles.
    pub(crate) handles: AtomicUsize,
    /// Whether the last handle was dropped.
    pub(crate) abandoned: AtomicBool,
    pub(crate) store_call: StoreCallTimer,
    pub(crate) health: Mutex<machine::Health>,
    /// Set when the writer thread panicked.
    pub(crate) died: OnceLock<Cause>,
    /// Whether a hint of the store is on its way to the writer: one says as much as many.
    pub(crate) hinted: AtomicBool,
    /// Set when nothing can be stored any more: the store is lost, or the writer panicked.
    pub(crate) lost: watch::Sender<Option<Cause>>,
    /// Set when the writer thread has ended.
    pub(crate) ended: watch::Sender<Option<Report>>,
    pub(crate) writer_figures: Mutex<WriterFigures>,
    pub(crate) task_figures: TaskFigures,
    /// The attempts that ended; only with `TestQueue`.
    pub(crate) journal: Option<Mutex<Vec<Ran>>>,
}

/// What a commit survives now. It changes where the store connects to another server.
#[derive(Debug)]
pub(crate) struct CurrentDurability(AtomicU8);

impl CurrentDurability {
    pub(crate) fn new(durability: Durability) -> Self {
        Self(AtomicU8::new(durability as u8))
    }

    pub(crate) fn set(&self, durability: Durability) {
        self.0.store(durability as u8, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> Durability {
        let level = self.0.load(Ordering::SeqCst);
        let higher = [Durability::Replicated, Durability::Synced];
        higher.into_iter().find(|one| *one as u8 == level).unwrap_or(Durability::Memory)
    }
}

/// A message to the writer.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A request whose caller waits for the answer.
    Request(Request, Arc<Ticket>),
    /// An input of the machine without an answer.
    Input(Input),
    /// The caller with this ticket has dropped its future.
    Gone(Arc<Ticket>),
    /// A caller waits until the writer has nothing to do; with `all`, until no handler runs either.
    Idle { ticket: Arc<Ticket>, all: bool },
}

/// A message from the writer to the delivery task.
#[derive(Debug)]
pub(crate) enum Out {
    Answer(Arc<Ticket>, Answer),
    /// A job to run, and when it must stop unless its lease is extended.
    Run(machine::Run, Mono),
    /// When an attempt must stop, now that its lease was extended.
    Extended(LeaseToken, Mono),
    Stop(LeaseToken, StopReason),
    Changed(Vec<Change>, Vec<windlass_core::Queue>),
    /// Changes that are not known one by one: another process wrote, or the outbox was full.
    News,
    /// The store is lost: nothing will change any more.
    Lost,
    /// The number of workers from now on.
    Slots(usize),
}

/// One caller that waits for one answer.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) reply: Reply<Response>,
    /// Its `RequestId` in the machine; `u64::MAX` before it has one.
    pub(crate) id: AtomicU64,
}

#[derive(Debug)]
pub(crate) enum Response {
    Answer(Answer),
    Idle,
    Unserved(Unserved),
}

impl Ticket {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { reply: Reply::new(), id: AtomicU64::new(u64::MAX) })
    }
}

/// The tickets of requests in the machine, by `RequestId`. Ids are reused after their answer.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    known: Vec<Option<Arc<Ticket>>>,
    free: Vec<usize>,
}

impl Tickets {
    /// Assigns an id to a ticket.
    pub(crate) fn add(&mut self, ticket: Arc<Ticket>) -> RequestId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.known.push(None);
            self.known.len() - 1
        });
        let id = at as u64;
        ticket.id.store(id, Ordering::Release);
        self.known[at] = Some(ticket);
        RequestId(id)
    }

    /// The id of a ticket that is not answered yet. Afterwards the id may belong to another one.
    pub(crate) fn number_of(&self, ticket: &Arc<Ticket>) -> Option<RequestId> {
        let id = ticket.id.load(Ordering::Acquire);
        let holder = self.known.get(usize::try_from(id).ok()?)?.as_ref()?;
        Arc::ptr_eq(holder, ticket).then_some(RequestId(id))
    }

    /// Frees an id that the machine answered. `None` if `take_all` has taken its ticket.
    pub(crate) fn take(&mut self, id: RequestId) -> Option<Arc<Ticket>> {
        let at = usize::try_from(id.0).ok()?;
        let ticket = self.known.get_mut(at)?.take();
        self.free.push(at);
        ticket
    }

    /// Takes the tickets of all waiting callers. Their ids stay in use until the machine answers.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<Ticket>> {
        self.known.iter_mut().filter_map(Option::take).collect()
    }
}

/// Since when a call of the store runs and since when calls fail, for the watchdog. Instants are
/// monotonic milliseconds plus one; zero means none.
#[derive(Debug, Default)]
pub(crate) struct StoreCallTimer {
    /// The start of the current call.
    since: AtomicU64,
    /// Whether the watchdog waits for `begun`.
    pub(crate) asleep: AtomicBool,
    pub(crate) begun: Notify,
    /// Whether the current call exceeds the store timeout.
    pub(crate) stuck: AtomicBool,
}

impl StoreCallTimer {
    pub(crate) fn begin(&self, now: u64) {
        self.since.store(now + 1, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.begun.notify_one();
        }
    }

    pub(crate) fn end(&self) {
        self.since.store(0, Ordering::SeqCst);
        self.stuck.store(false, Ordering::SeqCst);
    }

    /// The start of the current call.
    pub(crate) fn since(&self) -> Option<u64> {
        self.since.load(Ordering::SeqCst).checked_sub(1)
    }
}

impl Shared {
    /// Sends an input to the writer. Dropped once the writer has stopped.
    pub(crate) fn input(&self, input: Input) {
        let _ = self.mailbox.report(Mail::Input(input));
    }

    /// Sends a request and waits for its answer. If the mailbox is full, waits for room or is
    /// refused.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        request: Request,
        wait_for_room: bool,
    ) -> Result<Answer, Unserved> {
        let weight = weight(&request);
        let ticket = Ticket::new();
        let polls = matches!(request, Request::Poll(_));
        self.admit(Mail::Request(request, Arc::clone(&ticket)), weight, wait_for_room).await?;
        let mut waiting = Waiting { shared: self, ticket, polls, over: false };
        match waiting.response().await {
            Response::Answer(Answer::Refused(refused)) => Err(refused.into()),
            Response::Answer(answer) => Ok(answer),
            Response::Unserved(unserved) => Err(unserved),
            Response::Idle => Err(Unserved::Stopped),
        }
    }

    /// Waits until the writer has nothing to do; with `all`, until no handler runs either.
    pub(crate) async fn idle(self: &Arc<Self>, all: bool) -> Result<(), Unserved> {
        let ticket = Ticket::new();
        let mail = Mail::Idle { ticket: Arc::clone(&ticket), all };
        self.mailbox.report(mail).map_err(|_| self.closed_error())?;
        let mut waiting = Waiting { shared: self, ticket, polls: false, over: false };
        match waiting.response().await {
            Response::Unserved(unserved) => Err(unserved),
            Response::Idle | Response::Answer(_) => Ok(()),
        }
    }

    async fn admit(&self, mail: Mail, weight: Weight, wait_for_room: bool) -> Result<(), Unserved> {
        let mut mail = Some(mail);
        poll_fn(|cx| {
            if let Some(cause) = self.stuck() {
                self.task_figures.unavailable.fetch_add(1, Ordering::Relaxed);
                return Poll::Ready(Err(Refused::Unavailable(cause).into()));
            }
            let Some(piece) = mail.take() else { return Poll::Ready(Ok(())) };
            match self.mailbox.admit(piece, weight, wait_for_room.then_some(cx.waker())) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(NotAdmitted::Full(piece)) if wait_for_room => {
                    mail = Some(piece);
                    Poll::Pending
                }
                Err(NotAdmitted::Full(_)) => {
                    self.task_figures.overloaded.fetch_add(1, Ordering::Relaxed);
                    let limit = self.mailbox.room().items;
                    Poll::Ready(Err(Refused::Overloaded { what: "requests", limit }.into()))
                }
                Err(NotAdmitted::Closed(_)) => {
                    self.task_figures.closed.fetch_add(1, Ordering::Relaxed);
                    Poll::Ready(Err(self.closed_error()))
                }
            }
        })
        .await
    }

    /// The error for requests after the mailbox was closed.
    pub(crate) fn closed_error(&self) -> Unserved {
        match self.died.get() {
            Some(cause) => Unserved::Died(cause.clone()),
            None if self.mailbox.admission() == Admission::ReportsOnly => {
                Unserved::Refused(Refused::ShuttingDown)
            }
            None => Unserved::Stopped,
        }
    }

    /// The cause, if the current call of the store is stuck.
    pub(crate) fn stuck(&self) -> Option<Cause> {
        if !self.store_call.stuck.load(Ordering::Acquire) {
            return None;
        }
        let since = self.store_call.since()?;
        let time = self.clock.now().mono.get().saturating_sub(since);
        Some(Cause::new(&format!("the store has not answered for {time} ms")))
    }

    /// Sends the stop signal to the attempts that `which` selects.
    pub(crate) fn stop_attempts(&self, reason: StopReason, which: impl Fn(&Attempt) -> bool) {
        let attempts: Vec<Arc<Attempt>> =
            lock(&self.attempts).values().filter_map(Weak::upgrade).collect();
        for attempt in attempts.iter().filter(|attempt| which(attempt)) {
            attempt.stop(reason);
        }
    }

    /// The leases of attempts that run.
    pub(crate) fn running(&self) -> Vec<LeaseToken> {
        let attempts = lock(&self.attempts);
        let running = attempts.iter().filter(|(_, attempt)| attempt.strong_count() > 0);
        running.map(|(token, _)| *token).collect()
    }

    /// Answers a caller. Jobs claimed for a caller that has left are given back.
    pub(crate) fn answer(&self, ticket: &Ticket, response: Response) {
        if let Err(response) = ticket.reply.fill(response) {
            self.undelivered(response);
        }
    }

    fn undelivered(&self, response: Response) {
        if let Response::Answer(Answer::Jobs(runs)) = response {
            let tokens: Vec<LeaseToken> = runs.iter().map(|run| run.job.token()).collect();
            if !tokens.is_empty() {
                self.input(Input::Undelivered(tokens));
            }
        }
    }
}

/// Wakes the writer when a clock was moved by hand. Weak: a clock may outlive the runtime.
pub(crate) struct ClockWaker(pub(crate) Weak<Shared>);

impl Wake for ClockWaker {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.mailbox.wake_writer();
        }
    }
}

/// Has the writer ask the store for news. A store may outlive the runtime.
pub(crate) struct NewsWaker(pub(crate) Weak<Shared>);

impl Wake for NewsWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(shared) = self.0.upgrade() else { return };
        if !shared.hinted.swap(true, Ordering::SeqCst) {
            shared.input(Input::Changed);
        }
    }
}

/// A caller that waits for its answer. If it is dropped first, jobs claimed for it are given back.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    ticket: Arc<Ticket>,
    polls: bool,
    over: bool,
}

impl Waiting<'_> {
    async fn response(&mut self) -> Response {
        let response = poll_fn(|cx| self.ticket.reply.poll(cx)).await;
        self.over = true;
        response
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        match self.ticket.reply.leave() {
            Some(response) => self.shared.undelivered(response),
            None if self.polls => {
                let _ = self.shared.mailbox.report(Mail::Gone(Arc::clone(&self.ticket)));
            }
            None => {}
        }
    }
}

fn weight(request: &Request) -> Weight {
    match request {
        Request::Enqueue(new) => Weight { items: 1, bytes: new.payload.as_str().len() },
        Request::EnqueueMany(new) => {
            let bytes = new.iter().map(|new| new.payload.as_str().len()).sum();
            Weight { items: new.len().max(1), bytes }
        }
        Request::SettleMany(settles) => Weight { items: settles.len().max(1), bytes: 0 },
        _ => Weight { items: 1, bytes: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller leaves while its answer is being delivered, and its id is reused for the next one,
    /// which must not be cancelled in its place.
    #[test]
    fn an_answered_ticket_does_not_find_the_next_ticket_with_its_id() {
        let mut tickets = Tickets::default();
        let (left, next) = (Ticket::new(), Ticket::new());
        let id = tickets.add(Arc::clone(&left));
        assert_eq!(tickets.number_of(&left), Some(id));
        tickets.take(id);
        assert_eq!(tickets.number_of(&left), None);
        assert_eq!(tickets.add(Arc::clone(&next)), id);
        assert_eq!(tickets.number_of(&left), None);
        assert_eq!(tickets.number_of(&next), Some(id));
        assert_eq!(tickets.number_of(&Ticket::new()), None);
    }
}
