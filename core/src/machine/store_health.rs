//! The state of the store: ready, to be retried, unknown commit, to be reopened, or lost.

use super::commit::UnknownCommit;
use super::input::{Health, WakeReason};
use super::timers::Timers;
use crate::store::Cause;
use crate::{Millis, Mono};

/// The state of the store, as far as the machine knows.
#[derive(Debug, Default)]
pub(super) struct StoreHealth {
    state: State,
    /// Failures in a row.
    failures: u32,
    cause: Option<Cause>,
    /// Whether it failed for want of space.
    full: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Ready,
    /// To be tried again.
    Waiting,
    /// A batch of which it is not known whether it was committed.
    Unknown(UnknownCommit),
    /// To be reopened.
    Broken(Option<UnknownCommit>),
    Lost,
}

/// What may be asked of the store now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Commit,
    WasCommitted(crate::BatchId),
    Reopen,
    Wait,
}

impl StoreHealth {
    /// Lets time pass: what was to be tried again later may be tried now.
    pub(super) fn advance(&mut self, now: Mono, timers: &Timers) {
        if matches!(self.state, State::Waiting) && timers.is_due(WakeReason::StoreRetry, now) {
            self.state = State::Ready;
        }
    }

    /// What may be asked of the store now.
    pub(super) fn turn(&self, now: Mono, timers: &Timers) -> Turn {
        let due = timers.is_due(WakeReason::StoreRetry, now);
        match &self.state {
            State::Ready => Turn::Commit,
            State::Unknown(unknown) if due => Turn::WasCommitted(unknown.batch_id()),
            State::Broken(_) if due => Turn::Reopen,
            _ => Turn::Wait,
        }
    }

    /// Whether a batch may be committed.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Whether it is to be tried, asked or opened again.
    pub(super) fn is_to_be_tried(&self) -> bool {
        !matches!(self.state, State::Ready | State::Lost)
    }

    /// Whether it is not lost.
    pub(super) fn is_usable(&self) -> bool {
        !matches!(self.state, State::Lost)
    }

    /// Why requests cannot even wait, if they cannot.
    pub(super) fn lost_or_reopening(&self) -> Option<Cause> {
        match self.state {
            State::Broken(_) | State::Lost => self.cause.clone(),
            _ => None,
        }
    }

    pub(super) fn health(&self) -> Health {
        match (&self.state, self.cause.clone()) {
            (State::Lost, Some(cause)) => Health::Lost(cause),
            (State::Broken(_), Some(cause)) => Health::Reopening(cause),
            (_, Some(cause)) => Health::Retrying(cause),
            (_, None) => Health::Good,
        }
    }

    // What happened.

    pub(super) fn works(&mut self, timers: &mut Timers) {
        *self = Self::default();
        timers.set(WakeReason::StoreRetry, None);
    }

    pub(super) fn fail(&mut self, cause: Cause, now: Mono, timers: &mut Timers) {
        self.try_later(cause, now, timers);
        self.state = State::Waiting;
    }

    pub(super) fn fail_full(&mut self, cause: Cause, now: Mono, timers: &mut Timers) {
        self.fail(cause, now, timers);
        self.full = true;
    }

    /// Whether it had no space left when last asked.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn note_unknown(
        &mut self,
        unknown: UnknownCommit,
        cause: Cause,
        now: Mono,
        timers: &mut Timers,
    ) {
        self.cause = Some(cause);
        self.state = State::Unknown(unknown);
        timers.set(WakeReason::StoreRetry, Some(now));
    }

    pub(super) fn break_down(
        &mut self,
        unknown: Option<UnknownCommit>,
        cause: Cause,
        now: Mono,
        timers: &mut Timers,
    ) {
        self.cause = Some(cause);
        self.state = State::Broken(unknown);
        timers.set(WakeReason::StoreRetry, Some(now));
    }

    pub(super) fn lose(&mut self, cause: Cause) {
        self.cause = Some(cause);
        self.state = State::Lost;
    }

    /// The store could not say, or could not be opened: ask again later.
    pub(super) fn ask_again(&mut self, cause: Cause, now: Mono, timers: &mut Timers) {
        self.try_later(cause, now, timers);
    }

    /// The store failed while it was asked about an unknown commit: reopen it first.
    pub(super) fn break_while_unknown(&mut self, cause: Cause, now: Mono, timers: &mut Timers) {
        let unknown = self.take_unknown();
        self.break_down(unknown, cause, now, timers);
    }

    /// The store was reopened. An unknown commit is asked for next.
    pub(super) fn reopened(&mut self, now: Mono, timers: &mut Timers) {
        match self.take_unknown() {
            Some(unknown) => {
                self.state = State::Unknown(unknown);
                timers.set(WakeReason::StoreRetry, Some(now));
            }
            None => self.works(timers),
        }
    }

    pub(super) fn take_unknown(&mut self) -> Option<UnknownCommit> {
        match core::mem::take(&mut self.state) {
            State::Unknown(unknown) => Some(unknown),
            State::Broken(unknown) => unknown,
            _ => None,
        }
    }

    /// Puts back what [`take_unknown`](Self::take_unknown) took.
    pub(super) fn keep_unknown(&mut self, unknown: Option<UnknownCommit>) {
        if let Some(unknown) = unknown {
            self.state = State::Unknown(unknown);
        }
    }

    /// Failures of the store in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    fn try_later(&mut self, cause: Cause, now: Mono, timers: &mut Timers) {
        self.cause = Some(cause);
        let wait = FIRST_RETRY.get() << self.failures.min(8);
        self.failures = self.failures.saturating_add(1);
        let at = now.plus(Millis::new(wait).min(LAST_RETRY));
        timers.set(WakeReason::StoreRetry, Some(at));
    }
}

/// The wait after the first failure; it doubles with each further one.
const FIRST_RETRY: Millis = Millis::new(10);
/// The longest wait.
const LAST_RETRY: Millis = Millis::seconds(1);
