//! What the writer thread, the tasks and the handles of one runtime share.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Wake};

use tokio::sync::{Notify, watch};
use windlass_core::machine::{self, Answer, Input, Refused, Request, StopReason};
use windlass_core::store::{Cause, Change, Durability};
use windlass_core::{LeaseToken, Millis, RequestId, WorkerId};

use crate::Clock;
use crate::context::{Attempt, RunningJob};
use crate::error::Unserved;
use crate::lifecycle::Report;
use crate::metrics::{TaskFigures, WriterFigures};
use crate::reads::Readers;
use crate::sync::{Admission, Mailbox, Mutex, NoEntry, Outbox, Reply, Slots, Weight, lock};
use crate::testing::Ran;
use crate::watch::{Events, Watchers};

/// Everything about one runtime that more than one thread touches.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) mailbox: Mailbox<Mail>,
    pub(crate) outbox: Outbox<Out>,
    pub(crate) slots: Slots<RunningJob>,
    /// Those who wait for an answer out of the machine.
    pub(crate) tickets: Mutex<Tickets>,
    /// The attempts that were handed to workers, to be told to stop.
    pub(crate) attempts: Mutex<BTreeMap<LeaseToken, Weak<Attempt>>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) readers: Readers,
    pub(crate) watchers: Watchers,
    pub(crate) events: Events,
    /// Changes of jobs that the writer has handed out and the delivery task has not told yet.
    pub(crate) untold: AtomicUsize,
    pub(crate) durability: Durability,
    /// Who runs jobs here, as the store knows it.
    pub(crate) worker: WorkerId,
    /// Whether there are handlers.
    pub(crate) manned: bool,
    /// How many workers there should be.
    pub(crate) workers: AtomicUsize,
    /// Whether somebody asked this worker to stop.
    pub(crate) stop_asked: watch::Sender<bool>,
    pub(crate) stop_grace: Millis,
    pub(crate) force_grace: Millis,
    pub(crate) patience: Millis,
    /// How many handles there are, and whether the last one was dropped.
    pub(crate) handles: AtomicUsize,
    pub(crate) abandoned: AtomicBool,
    pub(crate) pulse: Pulse,
    pub(crate) health: Mutex<machine::Health>,
    pub(crate) died: OnceLock<Cause>,
    /// Why nothing can be stored any more: the store is lost, or the writer has died.
    pub(crate) lost: watch::Sender<Option<Cause>>,
    pub(crate) ended: watch::Sender<Option<Report>>,
    pub(crate) writer_figures: Mutex<WriterFigures>,
    pub(crate) task_figures: TaskFigures,
    /// What ran, where somebody wants to know: in tests.
    pub(crate) journal: Option<Mutex<Vec<Ran>>>,
}

/// What goes to the writer.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Somebody asks, and waits for the answer.
    Request(Request, Arc<Ticket>),
    /// Something happened.
    Input(Input),
    /// Whoever waits with this ticket has left.
    Gone(Arc<Ticket>),
    /// Somebody waits until there is nothing to do: for the writer, and for workers too if `all`.
    Idle { ticket: Arc<Ticket>, all: bool },
}

/// What comes from the writer.
#[derive(Debug)]
pub(crate) enum Out {
    Answer(Arc<Ticket>, Answer),
    Run(machine::Run),
    Stop(LeaseToken, StopReason),
    Changed(Vec<Change>, Vec<windlass_core::Queue>),
    /// Something has changed that nobody can name: another process wrote, or too much happened.
    News,
    /// The store is lost: nothing will change any more.
    Lost,
    /// There should be so many workers from now on.
    Slots(usize),
}

/// The place where one caller waits for one answer.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) reply: Reply<Response>,
    /// Its number in the machine, once it has one.
    pub(crate) id: AtomicU64,
}

/// What a caller hears.
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

/// The tickets of requests that the machine knows, by their number there.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    known: Vec<Option<Arc<Ticket>>>,
    free: Vec<usize>,
}

impl Tickets {
    /// Gives a ticket its number.
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

    /// The number of a ticket, as long as it was not answered: afterwards it may be another's.
    pub(crate) fn number_of(&self, ticket: &Arc<Ticket>) -> Option<RequestId> {
        let id = ticket.id.load(Ordering::Acquire);
        let holder = self.known.get(usize::try_from(id).ok()?)?.as_ref()?;
        Arc::ptr_eq(holder, ticket).then_some(RequestId(id))
    }

    /// Takes back a number that was answered; the ticket, unless somebody else answered it.
    pub(crate) fn take(&mut self, id: RequestId) -> Option<Arc<Ticket>> {
        let at = usize::try_from(id.0).ok()?;
        let ticket = self.known.get_mut(at)?.take();
        self.free.push(at);
        ticket
    }

    /// The tickets of all who wait. Their numbers stay taken until the machine answers them.
    pub(crate) fn dismiss(&mut self) -> Vec<Arc<Ticket>> {
        self.known.iter_mut().filter_map(Option::take).collect()
    }
}

/// Whether a call of the store is under way, for the watchdog.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Since when the call has been under way, in milliseconds plus one; zero if there is none.
    since: AtomicU64,
    /// Since when no call has succeeded, counted likewise.
    trouble: AtomicU64,
    /// Whether the watchdog sleeps until a call begins.
    pub(crate) asleep: AtomicBool,
    pub(crate) begun: Notify,
    /// Whether the call under way was found to take too long.
    pub(crate) stuck: AtomicBool,
}

impl Pulse {
    pub(crate) fn begin(&self, now: u64) {
        self.since.store(now + 1, Ordering::SeqCst);
        let _ = self.trouble.compare_exchange(0, now + 1, Ordering::SeqCst, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.begun.notify_one();
        }
    }

    pub(crate) fn end(&self, worked: bool) {
        self.since.store(0, Ordering::SeqCst);
        self.stuck.store(false, Ordering::SeqCst);
        if worked {
            self.trouble.store(0, Ordering::SeqCst);
        }
    }

    /// Since when the call under way has been, if there is one.
    pub(crate) fn since(&self) -> Option<u64> {
        self.since.load(Ordering::SeqCst).checked_sub(1)
    }

    /// Since when no call has succeeded.
    pub(crate) fn trouble(&self) -> Option<u64> {
        self.trouble.load(Ordering::SeqCst).checked_sub(1)
    }
}

impl Shared {
    /// Tells the writer something. What comes after it has stopped is of no use to anybody.
    pub(crate) fn input(&self, input: Input) {
        let _ = self.mailbox.report(Mail::Input(input));
    }

    /// Asks the machine and waits for its answer; if `patient`, also for room in the mailbox.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        request: Request,
        patient: bool,
    ) -> Result<Answer, Unserved> {
        let weight = weight(&request);
        let ticket = Ticket::new();
        let polls = matches!(request, Request::Poll(_));
        self.admit(Mail::Request(request, Arc::clone(&ticket)), weight, patient).await?;
        let mut waiting = Waiting { shared: self, ticket, polls, over: false };
        match waiting.response().await {
            Response::Answer(Answer::Refused(refused)) => Err(refused.into()),
            Response::Answer(answer) => Ok(answer),
            Response::Unserved(unserved) => Err(unserved),
            Response::Idle => Err(Unserved::Stopped),
        }
    }

    /// Waits until there is nothing that the writer could do now; and nobody runs anything either,
    /// if `all`.
    pub(crate) async fn idle(self: &Arc<Self>, all: bool) -> Result<(), Unserved> {
        let ticket = Ticket::new();
        let mail = Mail::Idle { ticket: Arc::clone(&ticket), all };
        self.mailbox.report(mail).map_err(|_| self.shut_out())?;
        let mut waiting = Waiting { shared: self, ticket, polls: false, over: false };
        match waiting.response().await {
            Response::Unserved(unserved) => Err(unserved),
            Response::Idle | Response::Answer(_) => Ok(()),
        }
    }

    async fn admit(&self, mail: Mail, weight: Weight, patient: bool) -> Result<(), Unserved> {
        let mut mail = Some(mail);
        poll_fn(|cx| {
            if let Some(cause) = self.stuck() {
                self.task_figures.unavailable.fetch_add(1, Ordering::Relaxed);
                return Poll::Ready(Err(Refused::Unavailable(cause).into()));
            }
            let Some(piece) = mail.take() else { return Poll::Ready(Ok(())) };
            match self.mailbox.admit(piece, weight, patient.then_some(cx.waker())) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(NoEntry::Full(piece)) if patient => {
                    mail = Some(piece);
                    Poll::Pending
                }
                Err(NoEntry::Full(_)) => {
                    self.task_figures.overloaded.fetch_add(1, Ordering::Relaxed);
                    let limit = self.mailbox.room().items;
                    Poll::Ready(Err(Refused::Overloaded { what: "requests", limit }.into()))
                }
                Err(NoEntry::Closed(_)) => {
                    self.task_figures.shut_out.fetch_add(1, Ordering::Relaxed);
                    Poll::Ready(Err(self.shut_out()))
                }
            }
        })
        .await
    }

    /// Why nothing is admitted.
    pub(crate) fn shut_out(&self) -> Unserved {
        match self.died.get() {
            Some(cause) => Unserved::Died(cause.clone()),
            None if self.mailbox.admission() == Admission::ReportsOnly => {
                Unserved::Refused(Refused::ShuttingDown)
            }
            None => Unserved::Stopped,
        }
    }

    /// Why the store is taken to be stuck, if it is.
    pub(crate) fn stuck(&self) -> Option<Cause> {
        if !self.pulse.stuck.load(Ordering::Acquire) {
            return None;
        }
        let since = self.pulse.since()?;
        let time = self.clock.now().mono.get().saturating_sub(since);
        Some(Cause::new(&format!("the store has not answered for {time} ms")))
    }

    /// Tells the attempts that `which` picks to stop.
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

    /// Answers a caller. Jobs that reach nobody are given back.
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

/// Has the writer look at a clock that was moved by hand. A clock may outlive the runtime.
pub(crate) struct ClockWaker(pub(crate) Weak<Shared>);

impl Wake for ClockWaker {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.mailbox.poke();
        }
    }
}

/// A caller that waits, and may leave at any moment.
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

    /// A caller leaves just when its answer is on the way: its number is given to the next one,
    /// who must not be taken for the one that left.
    #[test]
    fn a_ticket_that_was_answered_does_not_speak_for_the_next_one_with_its_number() {
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
