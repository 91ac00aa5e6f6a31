//! How the store is doing: ready, to be tried again, in doubt, to be opened anew, or lost.

use super::commit::Doubt;
use super::input::{Health, WakeReason, Wakeup};
use crate::store::Cause;
use crate::{Millis, Mono};

/// The state of the store, as far as the machine knows.
#[derive(Debug, Default)]
pub(super) struct Link {
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
    Waiting {
        until: Mono,
    },
    /// A batch of which it is not known whether it was committed.
    Doubtful {
        doubt: Doubt,
        until: Mono,
    },
    /// To be opened anew.
    Broken {
        doubt: Option<Doubt>,
        until: Mono,
    },
    Lost,
}

/// What may be asked of the store now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Commit,
    Look(crate::BatchId),
    Reopen,
    Wait,
}

impl Link {
    /// Lets time pass: what was to be tried again later may be tried now.
    pub(super) fn advance(&mut self, now: Mono) {
        if matches!(self.state, State::Waiting { until } if until <= now) {
            self.state = State::Ready;
        }
    }

    /// What may be asked of the store now.
    pub(super) fn turn(&self, now: Mono) -> Turn {
        match &self.state {
            State::Ready => Turn::Commit,
            State::Doubtful { doubt, until } if *until <= now => Turn::Look(doubt.batch_id()),
            State::Broken { until, .. } if *until <= now => Turn::Reopen,
            _ => Turn::Wait,
        }
    }

    /// When it is to be tried again.
    pub(super) fn wakeup(&self) -> Option<Wakeup> {
        match &self.state {
            State::Ready | State::Lost => None,
            State::Waiting { until }
            | State::Doubtful { until, .. }
            | State::Broken { until, .. } => {
                Some(Wakeup { at: *until, reason: WakeReason::StoreRetry })
            }
        }
    }

    /// Whether a batch may be committed.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Whether it is not lost.
    pub(super) fn is_usable(&self) -> bool {
        !matches!(self.state, State::Lost)
    }

    /// Why requests cannot even wait, if they cannot.
    pub(super) fn lost_or_reopening(&self) -> Option<Cause> {
        match self.state {
            State::Broken { .. } | State::Lost => self.cause.clone(),
            _ => None,
        }
    }

    pub(super) fn health(&self) -> Health {
        match (&self.state, self.cause.clone()) {
            (State::Lost, Some(cause)) => Health::Lost(cause),
            (State::Broken { .. }, Some(cause)) => Health::Reopening(cause),
            (_, Some(cause)) => Health::Retrying(cause),
            (_, None) => Health::Good,
        }
    }

    // What happened.

    pub(super) fn works(&mut self) {
        *self = Self::default();
    }

    pub(super) fn fail(&mut self, cause: Cause, now: Mono) {
        let until = self.next_try(cause, now);
        self.state = State::Waiting { until };
    }

    pub(super) fn fail_full(&mut self, cause: Cause, now: Mono) {
        self.fail(cause, now);
        self.full = true;
    }

    /// Whether it had no space left when last asked.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn doubt(&mut self, doubt: Doubt, cause: Cause, now: Mono) {
        self.cause = Some(cause);
        self.state = State::Doubtful { doubt, until: now };
    }

    pub(super) fn break_down(&mut self, doubt: Option<Doubt>, cause: Cause, now: Mono) {
        self.cause = Some(cause);
        self.state = State::Broken { doubt, until: now };
    }

    pub(super) fn lose(&mut self, cause: Cause) {
        self.cause = Some(cause);
        self.state = State::Lost;
    }

    /// The store could not say, or could not be opened: ask again later.
    pub(super) fn ask_again(&mut self, cause: Cause, now: Mono) {
        let at = self.next_try(cause, now);
        if let State::Doubtful { until, .. } | State::Broken { until, .. } = &mut self.state {
            *until = at;
        }
    }

    /// The store failed while it was asked about a doubtful batch: open it anew first.
    pub(super) fn break_in_doubt(&mut self, cause: Cause, now: Mono) {
        let doubt = self.take_doubt();
        self.break_down(doubt, cause, now);
    }

    /// The store was opened anew. A batch in doubt is looked for next.
    pub(super) fn reopened(&mut self, now: Mono) {
        match self.take_doubt() {
            Some(doubt) => self.state = State::Doubtful { doubt, until: now },
            None => self.works(),
        }
    }

    pub(super) fn take_doubt(&mut self) -> Option<Doubt> {
        match core::mem::take(&mut self.state) {
            State::Doubtful { doubt, .. } => Some(doubt),
            State::Broken { doubt, .. } => doubt,
            _ => None,
        }
    }

    fn next_try(&mut self, cause: Cause, now: Mono) -> Mono {
        self.cause = Some(cause);
        let wait = FIRST_RETRY.get() << self.failures.min(8);
        self.failures = self.failures.saturating_add(1);
        now.plus(Millis::new(wait).min(LAST_RETRY))
    }
}

/// The wait after the first failure; it doubles with each further one.
const FIRST_RETRY: Millis = Millis::new(10);
/// The longest wait.
const LAST_RETRY: Millis = Millis::seconds(1);
