//! How long the writer waits after a commit for those it has just answered.
//!
//! Whoever was answered may ask again at once: a producer in a loop, a handler that is done within
//! microseconds. If the writer went on without them, they would have to wait for the commit after
//! the next; everybody would end up in one of two halves that take turns, each paying for a sync of
//! its own. Waiting brings the halves together. It pays if they come back sooner than a sync takes,
//! which is tried out: where it does not pay, the writer goes on at once, and tries again later.

use std::time::Duration;

/// What was learnt about those who come back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gather {
    /// Of sixteen that were answered, so many come back in time.
    share: usize,
    /// How much mail was there before anybody was answered.
    there: usize,
    /// How many were answered, or given something to do, after the last commit.
    answered: usize,
    /// What a commit costs, whatever it holds: mostly its sync.
    sync: Duration,
    /// How many commits to go on at once.
    pause: u32,
    /// How long the next pause is; it doubles with each wait in a row that did not pay.
    next_pause: u32,
    /// Whether the latest wait was a short one.
    short: bool,
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    /// So much mail in all.
    pub(crate) mail: usize,
    /// No longer than this.
    pub(crate) at_most: Duration,
    /// Whether it is not worth going to sleep: being woken would take as long as the wait.
    pub(crate) awake: bool,
}

/// All, in sixteenths.
const ALL: usize = 16;

/// What a command takes, roughly, beside the sync. On a machine that is faster, or slower, large
/// batches wait a little less than would pay, or more.
const COMMAND: Duration = Duration::from_micros(3);

/// More than this share a sync well enough as they are.
const MANY: usize = 512;

/// The longest wait, whatever a sync costs: a disk that stood still once is not waited for.
const LONGEST: Duration = Duration::from_millis(5);

/// So few are waited for without going to sleep, if they came back soon the last time.
const FEW: usize = 4;

/// What coming back soon is: little more than it takes to be woken.
const SOON: Duration = Duration::from_micros(100);

/// The most commits between two trials.
const LONGEST_PAUSE: u32 = 64;

impl Default for Gather {
    fn default() -> Self {
        let sync = Duration::ZERO;
        let (there, answered, pause, next_pause) = (0, 0, 0, 1);
        Self { share: ALL, there, answered, sync, pause, next_pause, short: false }
    }
}

impl Gather {
    /// A commit of so many commands took this long.
    pub(crate) fn committed(&mut self, commands: usize, took: Duration) {
        let work = COMMAND.saturating_mul(u32::try_from(commands).unwrap_or(u32::MAX));
        self.sync = (self.sync * 7 + took.saturating_sub(work)) / 8;
    }

    /// A commit is about to be answered; so much mail is there.
    pub(crate) fn answers(&mut self, there: usize) {
        (self.there, self.answered) = (there, 0);
    }

    /// One more was answered, or given something to do.
    pub(crate) fn answered(&mut self) {
        self.answered += 1;
    }

    /// What to wait for before the next commit.
    pub(crate) fn wait(&mut self) -> Option<Wait> {
        let back = self.answered * self.share / ALL;
        if back == 0 || self.answered > MANY {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let part = u32::try_from(self.share).unwrap_or_default();
        let at_most = (self.sync * part / 16).min(LONGEST);
        let awake = self.short && self.answered <= FEW;
        Some(Wait { mail: self.there + back, at_most, awake })
    }

    /// The wait took this long, and so much mail is there now.
    pub(crate) fn came(&mut self, mail: usize, took: Duration) {
        self.short = took <= SOON;
        let back = mail.saturating_sub(self.there);
        let share = (back * ALL / self.answered.max(1)).min(ALL);
        // Those who came back save their part of a commit.
        let saved = self.sync * u32::try_from(share).unwrap_or_default() / 16;
        if saved < took {
            (self.share, self.pause) = (ALL, self.next_pause);
            self.next_pause = (2 * self.next_pause).min(LONGEST_PAUSE);
            return;
        }
        self.next_pause = 1;
        self.share = if share >= self.share { (self.share + 1).min(ALL) } else { share };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(400);

    /// A runtime that has seen many commits of this cost.
    fn settled() -> Gather {
        let mut gather = Gather::default();
        (0..100).for_each(|_| gather.committed(0, SYNC));
        gather.sync = SYNC;
        gather
    }

    fn after_a_commit(gather: &mut Gather, answered: usize) -> Option<Wait> {
        gather.answers(0);
        (0..answered).for_each(|_| gather.answered());
        gather.wait()
    }

    #[test]
    fn after_an_answer_it_waits_for_whom_it_answered_for_as_long_as_a_sync() {
        let mut gather = settled();
        assert_eq!(
            after_a_commit(&mut gather, 64),
            Some(Wait { mail: 64, at_most: SYNC, awake: false })
        );
    }

    #[test]
    fn without_an_answer_it_does_not_wait() {
        assert_eq!(after_a_commit(&mut settled(), 0), None);
    }

    #[test]
    fn mail_that_was_there_before_the_answers_does_not_count() {
        let mut gather = settled();
        gather.answers(10);
        (0..64).for_each(|_| gather.answered());
        assert_eq!(gather.wait().map(|wait| wait.mail), Some(74));
        gather.came(58, SYNC / 4);
        assert_eq!(after_a_commit(&mut gather, 64).map(|wait| wait.mail), Some(48));
    }

    #[test]
    fn for_very_many_it_does_not_wait() {
        assert!(after_a_commit(&mut settled(), MANY).is_some());
        assert_eq!(after_a_commit(&mut settled(), MANY + 1), None);
    }

    #[test]
    fn it_learns_how_many_come_back() {
        let mut gather = settled();
        after_a_commit(&mut gather, 64);
        gather.came(48, SYNC / 2);
        let wait = Wait { mail: 48, at_most: SYNC * 12 / 16, awake: false };
        assert_eq!(after_a_commit(&mut gather, 64), Some(wait));
        gather.came(48, SYNC / 8);
        assert_eq!(after_a_commit(&mut gather, 64).map(|wait| wait.mail), Some(52));
    }

    #[test]
    fn where_too_few_come_back_it_goes_on_at_once_and_tries_ever_more_rarely() {
        let mut gather = settled();
        for pause in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(
                after_a_commit(&mut gather, 64),
                Some(Wait { mail: 64, at_most: SYNC, awake: false })
            );
            gather.came(31, SYNC / 2);
            for _ in 0..pause {
                assert_eq!(after_a_commit(&mut gather, 64), None);
            }
        }
        after_a_commit(&mut gather, 64);
        gather.came(64, SYNC / 2);
        after_a_commit(&mut gather, 64);
        gather.came(0, SYNC);
        assert_eq!(after_a_commit(&mut gather, 64), None);
        assert!(after_a_commit(&mut gather, 64).is_some());
    }

    #[test]
    fn it_stays_awake_for_few_who_came_back_soon() {
        let mut gather = settled();
        let awake = |gather: &mut Gather, answered| {
            after_a_commit(gather, answered).is_some_and(|wait| wait.awake)
        };
        assert!(!awake(&mut gather, FEW), "it has never seen them come back");
        gather.came(FEW, SOON);
        assert!(awake(&mut gather, FEW));
        assert!(!awake(&mut gather, FEW + 1));
        gather.came(FEW + 1, 2 * SOON);
        assert!(!awake(&mut gather, FEW));
    }

    #[test]
    fn a_commit_that_takes_long_because_it_is_large_does_not_make_it_wait_longer() {
        let mut gather = settled();
        gather.committed(1_000, SYNC + 1_000 * COMMAND);
        let wait = Wait { mail: 1, at_most: SYNC, awake: false };
        assert_eq!(after_a_commit(&mut gather, 1), Some(wait));
    }

    #[test]
    fn what_a_sync_costs_is_learnt_anew_when_the_disk_becomes_slower() {
        let mut gather = settled();
        (0..100).for_each(|_| gather.committed(10, 10 * SYNC + 10 * COMMAND));
        let wait = after_a_commit(&mut gather, 1).unwrap();
        assert!(wait.at_most > 9 * SYNC, "{wait:?}");
        gather.committed(10, Duration::from_secs(59));
        let wait = after_a_commit(&mut gather, 1).unwrap();
        assert_eq!(wait.at_most, LONGEST);
    }
}
