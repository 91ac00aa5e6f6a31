//! Commits at the same time: several handles to one store, each on a thread of its own, with a
//! barrier between the answers and the write.
//!
//! A store enrols with a [`ConcurrentSubject`] and
//! `windlass_tests::concurrent_conformance!(MySubject);` in a test file of its own.

use std::panic;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use windlass_core::store::{Batch, CommitPoint, Outcomes, Store};

use crate::fixture::{Subject, World};

/// Makes one test per concurrent case for this subject.
#[macro_export]
macro_rules! concurrent_conformance {
    ($subject:ty) => {
        $crate::conformance_family!(
            $subject,
            concurrent,
            [
                one_key_enqueued_through_two_handles_makes_one_job,
                another_request_with_the_same_key_through_a_second_handle_is_a_conflict,
                new_jobs_through_two_handles_have_different_ids,
                one_token_settled_through_two_handles_records_one_attempt,
                of_two_verdicts_through_two_handles_the_first_counts,
                of_a_cancel_and_a_completion_the_first_counts,
                of_a_cancel_and_a_heartbeat_the_cancel_is_never_undone,
                of_a_reap_and_a_heartbeat_the_first_counts,
                of_a_reap_and_a_completion_the_first_counts,
                of_a_purge_and_a_replay_the_first_counts,
                of_a_delete_and_a_replay_the_first_counts,
                a_due_job_is_promoted_once,
                of_a_promotion_and_a_cancel_the_cancel_is_never_undone,
                a_key_taken_over_during_a_purge_names_the_new_job,
            ]
        );
        $crate::conformance_family!(
            $subject,
            concurrent_queues,
            [
                claims_through_two_handles_share_no_job_and_no_token,
                the_last_job_is_claimed_through_one_of_two_handles,
                a_claim_and_a_cancel_of_the_same_job_agree,
                a_concurrency_limit_holds_over_all_handles,
                a_concurrency_limit_of_a_kind_holds_over_all_handles,
                a_rate_holds_over_all_handles,
                a_rate_that_is_being_set_holds_for_later_claims,
                max_queued_holds_over_all_handles,
                a_concurrency_limit_that_is_being_set_holds_for_later_claims,
                max_queued_that_is_being_set_holds_for_later_jobs,
                no_claim_commits_after_a_pause,
                of_two_changes_of_the_same_settings_one_is_refused,
                a_pause_and_new_settings_are_both_kept,
                a_pause_and_settings_that_make_the_same_queue_are_both_kept,
                a_new_queue_kind_and_retry_policy_are_made_once,
                a_queue_that_is_deleted_while_it_gets_a_job_keeps_the_job,
                a_queue_that_vanishes_while_it_gets_a_job_keeps_the_job,
                a_queue_deleted_through_one_handle_is_made_again_through_another,
                a_worker_that_is_seen_while_it_is_stopped_keeps_the_stop_mark,
                a_batch_that_is_not_over_is_never_reported_as_not_committed,
                a_cancel_through_one_handle_is_news_of_a_lost_lease_to_the_other,
                a_cancel_before_the_first_check_for_news_is_reported_by_it,
                a_new_job_through_one_handle_is_news_to_the_other,
            ]
        );
        $crate::conformance_family!(
            $subject,
            concurrent_settings,
            [
                of_two_changes_of_the_same_server_setting_one_is_refused,
                a_server_setting_is_never_compared_with_a_value_that_is_being_replaced,
            ]
        );
        $crate::conformance_family!(
            $subject,
            concurrent_groups,
            [
                dead_letters_made_through_two_handles_are_counted_in_one_group,
                a_dead_letter_and_a_replay_through_two_handles_are_both_counted,
            ]
        );
        $crate::conformance_family!(
            $subject,
            concurrent_figures,
            [
                figures_that_are_added_while_they_are_folded_are_counted_once,
                figures_that_two_handles_fold_are_counted_once,
            ]
        );
        $crate::conformance_family!(
            $subject,
            concurrent_bulk,
            [
                one_page_planned_by_two_handles_is_taken_once,
                a_stop_and_a_step_agree_on_what_was_taken,
                actions_started_through_two_handles_have_different_ids,
            ]
        );
        $crate::conformance_family!(
            $subject,
            storm,
            [random_batches_through_four_handles_break_no_invariant]
        );
    };
}

/// A store that several handles commit to at once.
pub trait ConcurrentSubject: Subject<Store: Send + 'static> {
    /// Another handle to the same data, as another process would have it.
    fn handle(&mut self) -> Self::Store;

    /// Has this handle call `hook` at each point inside its commits, and with
    /// [`CommitPoint::Waiting`] also while [`Store::was_committed`] waits.
    fn on_commit(store: &mut Self::Store, hook: impl FnMut(CommitPoint) + Send + 'static);
}

/// Which of two commits is the first to have its answers, and to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The first batch is answered and written first.
    FirstLeads,
    /// The second batch is answered and written first.
    SecondLeads,
}

/// Runs a case in both orders.
pub fn in_both_orders(case: impl Fn(Order)) {
    case(Order::FirstLeads);
    case(Order::SecondLeads);
}

/// Commits two batches at the same time through handles of their own, as two processes would, and
/// checks the store afterwards. The outcomes stand in the order of the batches.
#[track_caller]
pub fn commit_both<S: ConcurrentSubject>(
    world: &mut World<S>,
    order: Order,
    first: impl FnOnce(&mut Batch),
    second: impl FnOnce(&mut Batch),
) -> (Outcomes, Outcomes) {
    world.act_as(2);
    let first = world.batch(first);
    world.act_as(3);
    let second = world.batch(second);
    let batches = match order {
        Order::FirstLeads => [first, second],
        Order::SecondLeads => [second, first],
    };
    let mut outcomes = commit_all(world, batches.into());
    let (Some(later), Some(leader)) = (outcomes.pop(), outcomes.pop()) else {
        unreachable!("two batches have two outcomes")
    };
    match order {
        Order::FirstLeads => (leader, later),
        Order::SecondLeads => (later, leader),
    }
}

/// Commits these batches at the same time, the first one leading, and checks the store afterwards.
#[track_caller]
pub fn commit_all<S: ConcurrentSubject>(
    world: &mut World<S>,
    batches: Vec<Batch>,
) -> Vec<Outcomes> {
    let now = world.now();
    let commit = |batch: Batch| -> Act<S::Store, Outcomes> {
        Box::new(move |store| {
            let committed = store.commit(now, &batch);
            committed.expect("a commit that meets others is not a failure")
        })
    };
    let outcomes = race(world, batches.into_iter().map(commit).collect());
    world.act_as(1);
    world.check();
    outcomes
}

/// Something that is done with a handle, on a thread of its own.
pub type Act<H, T> = Box<dyn FnOnce(&mut H) -> T + Send>;

/// How long to wait for a thread before the test fails. Nothing takes that long: a store that
/// comes close does not call its hook, or two commits wait for each other.
const LIMIT: Duration = Duration::from_mins(1);

/// Runs the first of these up to the point where its commit has its answers and has written
/// nothing. Then starts the others one by one, each until it has its answers too, waits for a
/// lock, or has ended. Then lets the first go on to its end, and after it the others.
pub fn race<S: ConcurrentSubject, T: Send + 'static>(
    world: &mut World<S>,
    acts: Vec<Act<S::Store, T>>,
) -> Vec<T> {
    let (reports, events) = channel();
    let mut barriers = Vec::new();
    let mut threads = Vec::new();
    // To open a store may take a lock.
    let handles: Vec<S::Store> = acts.iter().map(|_| world.handle()).collect();
    for (at, (act, handle)) in acts.into_iter().zip(handles).enumerate() {
        let (barrier, go) = channel();
        barriers.push(barrier);
        threads.push(start::<S, T>(handle, at, act, &reports, go));
        let leads = at == 0;
        let enough = |step| !leads || step == Step::Reached(CommitPoint::Answered);
        let step = wait_for(&events, at, enough);
        assert!(!leads || step != Step::Ended, "the first commit did not call its hook");
    }
    let mut barriers = barriers.into_iter();
    drop(barriers.next());
    // Should it have to wait for another, that one has to go on.
    wait_for(&events, 0, |step| step != Step::Reached(CommitPoint::Answered));
    drop(barriers);
    let join = |thread: JoinHandle<T>| thread.join().unwrap_or_else(|e| panic::resume_unwind(e));
    threads.into_iter().map(join).collect()
}

/// A message from a committing thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Reached(CommitPoint),
    Ended,
}

/// Runs `act` on a thread of its own. Its first commit stops once it has its answers, until the
/// other end of `go` is dropped.
fn start<S: ConcurrentSubject, T: Send + 'static>(
    mut store: S::Store,
    at: usize,
    act: Act<S::Store, T>,
    reports: &Sender<(usize, Step)>,
    go: Receiver<()>,
) -> JoinHandle<T> {
    let ended = Ended { at, reports: reports.clone() };
    let reports = reports.clone();
    let mut stopped = false;
    S::on_commit(&mut store, move |point| {
        // The receiver is gone once the test has failed.
        let _ = reports.send((at, Step::Reached(point)));
        if point == CommitPoint::Answered && !stopped {
            stopped = true;
            let waited = go.recv_timeout(LIMIT);
            assert_ne!(waited, Err(RecvTimeoutError::Timeout), "commit {at} was never let go on");
        }
    });
    thread::spawn(move || {
        let _ended = ended;
        act(&mut store)
    })
}

/// Reports the end of a thread, also if it panics.
struct Ended {
    at: usize,
    reports: Sender<(usize, Step)>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.reports.send((self.at, Step::Ended));
    }
}

/// Waits until this thread has come to such a step, or has ended.
fn wait_for(events: &Receiver<(usize, Step)>, at: usize, enough: impl Fn(Step) -> bool) -> Step {
    loop {
        match events.recv_timeout(LIMIT) {
            Ok((by, step)) if by == at && (step == Step::Ended || enough(step)) => return step,
            Ok(_) => {}
            Err(error) => panic!("commit {at} neither goes on nor ends: {error}"),
        }
    }
}
