//! Bulk replay and discard of the dead-letter queue: which jobs, how many, in which order, page by
//! page.

use windlass_core::limits::PAGE_ROWS;
use windlass_core::store::{Admin, AdminDone, Cursor, DeadFilter, Outcomes, Settle};
use windlass_core::{JobId, Millis, NewJob, StateName};

use crate::fixture::{
    Subject, TICK, UNUSUAL_TEXTS, World, claim_for, demand_for, fail_for_good, kind, main_work,
    queue, work, work_in, work_of,
};

/// The dead letters of the case, not those of the bystanders.
fn own() -> DeadFilter {
    let (queue, kind) = (Some(queue("main")), Some(kind("work")));
    DeadFilter { queue, kind, ..DeadFilter::default() }
}

fn with_error(text: &str) -> DeadFilter {
    DeadFilter { error_contains: Some(text.into()), ..own() }
}

/// Replays one page: how many, and where to go on.
#[track_caller]
fn replay<S: Subject>(
    world: &mut World<S>,
    filter: &DeadFilter,
    after: Option<Cursor>,
    limit: usize,
) -> (usize, Option<Cursor>) {
    let filter = filter.clone();
    replayed(world.admin(Admin::ReplayDead { filter, after, limit }))
}

#[track_caller]
fn replayed<E: std::fmt::Debug>(answer: Result<AdminDone, E>) -> (usize, Option<Cursor>) {
    match answer {
        Ok(AdminDone::Replayed { count, next }) => (count, next),
        other => panic!("the answer tells how many were replayed, not {other:?}"),
    }
}

/// Replays all pages, and returns how many each held.
#[track_caller]
fn replay_all<S: Subject>(world: &mut World<S>, filter: &DeadFilter, limit: usize) -> Vec<usize> {
    let (mut counts, mut after) = (Vec::new(), None);
    for _ in 0..100 {
        let (count, next) = replay(world, filter, after, limit);
        assert!(count <= limit, "{count} were replayed, but no more than {limit} were asked for");
        counts.push(count);
        if next.is_none() {
            return counts;
        }
        assert!(after.is_none() || next < after, "the cursor moves to older failures");
        after = next;
    }
    panic!("the pages do not end: {counts:?}")
}

/// Those of these jobs that were replayed, each once.
#[track_caller]
fn alive<S: Subject>(world: &mut World<S>, ids: &[JobId]) -> Vec<JobId> {
    let alive = |id: &JobId| {
        let job = world.job(*id);
        assert!(job.generation <= 1, "job {id} was replayed {} times", job.generation);
        let replayed = job.state.name() == StateName::Queued;
        assert_eq!(replayed, job.generation == 1, "job {id} is {}", job.state.name());
        assert!(!replayed || job.attempts == 0, "job {id} has its attempts back");
        replayed
    };
    ids.iter().copied().filter(alive).collect()
}

/// This many dead letters with this error, a second apart, the oldest first.
#[track_caller]
fn dead_letters<S: Subject>(world: &mut World<S>, count: usize, error: &str) -> Vec<JobId> {
    let dead = |_| {
        world.advance(Millis::seconds(1));
        world.dead(work(), error)
    };
    (0..count).map(dead).collect()
}

/// Makes this number of dead letters like this one, with as few commits as possible.
fn load_dead<S: Subject>(world: &mut World<S>, new: &NewJob, count: usize, error: &str) {
    let demand = demand_for(new);
    let out = world.load(|batch| {
        batch.enqueues.extend(std::iter::repeat_n(new.clone(), count));
        batch.claims.push(claim_for(demand, "w1", count));
    });
    assert_eq!(out.claims[0].jobs.len(), count, "all are claimed");
    world.load(|batch| {
        for leased in &out.claims[0].jobs {
            let verdict = fail_for_good(error);
            batch.settles.push(Settle { token: leased.job.token(), verdict });
        }
    });
}

// Order, limit and cursor.

pub fn the_newest_failure_is_replayed_first<S: Subject>() {
    let mut world = World::<S>::new();
    let first = world.running(work()).job.token();
    let second = world.dead(work(), "broken");
    world.advance(TICK);
    // The older job fails later.
    world.settle(first, fail_for_good("broken")).expect("the holder reports");
    let ids = [first.job, second];
    let (count, next) = replay(&mut world, &own(), None, 1);
    assert_eq!((count, next.is_some()), (1, true));
    assert_eq!(alive(&mut world, &ids), [first.job]);
    assert_eq!(replay(&mut world, &own(), next, 1).0, 1);
    assert_eq!(alive(&mut world, &ids), ids);
}

pub fn a_replayed_dead_letter_has_its_attempts_back_and_its_epoch_kept<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.dead(work(), "broken");
    let before = world.job(id);
    world.advance(Millis::minutes(1));
    let now = world.now();
    assert_eq!(replay(&mut world, &own(), None, 10), (1, None));
    let job = world.job(id);
    assert_eq!((job.attempts, job.generation, job.epoch), (0, 1, before.epoch));
    assert_eq!((job.run_at, job.state.name()), (now, StateName::Queued));
    assert_eq!(world.claim_one("w1").job.epoch, before.epoch.next());
}

pub fn no_more_are_replayed_than_asked_for_and_all_pages_together_replay_all_once<S: Subject>() {
    let mut world = World::<S>::new();
    let mut ids = dead_letters(&mut world, 3, "broken");
    // Several failures of one instant, so that a page ends between two of them.
    load_dead(&mut world, &work(), 4, "broken");
    let newest = world.dump().next_id.get() - 4;
    ids.extend((0..4).filter_map(|n| JobId::new(newest + n)));
    assert_eq!(replay_all(&mut world, &own(), 2), [2, 2, 2, 1]);
    assert_eq!(alive(&mut world, &ids), ids);
}

pub fn a_page_that_ends_with_the_last_match_leaves_none_behind<S: Subject>() {
    let mut world = World::<S>::new();
    let ids = dead_letters(&mut world, 4, "broken");
    let counts = replay_all(&mut world, &own(), 2);
    assert_eq!(counts.iter().sum::<usize>(), 4);
    assert_eq!(counts[..2], [2, 2]);
    assert_eq!(alive(&mut world, &ids), ids);
}

pub fn a_job_that_fails_again_is_not_met_again_behind_the_cursor<S: Subject>() {
    let mut world = World::<S>::new();
    let ids = dead_letters(&mut world, 3, "broken");
    let (count, next) = replay(&mut world, &own(), None, 1);
    assert_eq!(count, 1);
    let again = world.claim_one("w1").job;
    assert_eq!(again.id, ids[2], "the newest failure was replayed");
    world.settle(again.token(), fail_for_good("again")).expect("the holder reports");
    assert_eq!(replay(&mut world, &own(), next, 10), (2, None));
    let job = world.job(again.id);
    assert_eq!((job.state.name(), job.generation), (StateName::Failed, 1));
}

pub fn a_page_replays_no_more_rows_than_a_page_holds<S: Subject>() {
    let mut world = World::<S>::alone();
    load_dead(&mut world, &work(), PAGE_ROWS + 7, "broken");
    let page = |world: &mut World<S>, after| {
        let command = Admin::ReplayDead { filter: own(), after, limit: usize::MAX };
        let out = world.load(|batch| batch.admin.push(command));
        replayed(out.admin[0].clone())
    };
    let (count, next) = page(&mut world, None);
    assert_eq!((count, next.is_some()), (PAGE_ROWS, true));
    assert_eq!(page(&mut world, next), (7, None));
    world.check();
    let jobs = world.dump().jobs;
    assert!(jobs.iter().all(|row| row.job.generation == 1), "each was replayed once");
}

pub fn a_page_without_a_match_still_moves_on<S: Subject>() {
    let by_kind = own();
    let by_error = with_error("rare");
    for (filter, other) in [(by_kind, work_of("other")), (by_error, work())] {
        let mut world = World::<S>::alone();
        let id = world.dead(work(), "a rare error");
        world.advance(TICK);
        load_dead(&mut world, &other, PAGE_ROWS + 7, "a common error");
        let (mut counts, mut after) = (Vec::new(), None);
        loop {
            let filter = filter.clone();
            let command = Admin::ReplayDead { filter, after, limit: 5 };
            let out = world.load(|batch| batch.admin.push(command));
            let (count, next) = replayed(out.admin[0].clone());
            counts.push(count);
            assert!(counts.len() < 10, "the pages do not end: {counts:?}");
            if next.is_none() {
                break;
            }
            after = next;
        }
        assert_eq!(counts, [0, 1], "a page of others, then the match");
        assert_eq!(alive(&mut world, &[id]), [id]);
        world.check();
    }
}

// Which.

pub fn only_dead_letters_of_the_queue_are_replayed<S: Subject>() {
    let mut world = World::<S>::alone();
    let wanted = world.dead(work_in("one"), "broken");
    let other = world.dead(work_in("two"), "broken");
    let filter = DeadFilter { queue: Some(queue("one")), ..DeadFilter::default() };
    assert_eq!(replay(&mut world, &filter, None, 10), (1, None));
    assert_eq!(alive(&mut world, &[wanted, other]), [wanted]);
}

pub fn only_dead_letters_of_the_kind_are_replayed<S: Subject>() {
    let mut world = World::<S>::alone();
    let here = world.dead(work_of("one"), "broken");
    let other = world.dead(work_of("two"), "broken");
    let there = world.dead(NewJob { kind: kind("one"), ..work_in("aside") }, "broken");
    let filter = DeadFilter { kind: Some(kind("one")), ..DeadFilter::default() };
    assert_eq!(replay(&mut world, &filter, None, 10), (2, None));
    assert_eq!(alive(&mut world, &[here, other, there]), [here, there]);
}

pub fn without_a_filter_every_dead_letter_is_replayed<S: Subject>() {
    let mut world = World::<S>::alone();
    let new = [work(), work_in("aside"), work_of("other")];
    let ids = new.map(|new| world.dead(new, "broken"));
    assert_eq!(replay(&mut world, &DeadFilter::default(), None, 10), (3, None));
    assert_eq!(alive(&mut world, &ids), ids);
}

pub fn only_dead_letters_whose_last_error_holds_the_text_are_replayed<S: Subject>() {
    let mut world = World::<S>::new();
    let wanted = world.dead(work(), "503: upstream timed out after 3 s");
    let other = world.dead(work(), "400: bad request");
    let case = world.dead(work(), "Timed out");
    let ids = [wanted, other, case];
    assert_eq!(replay(&mut world, &with_error("timed  out"), None, 10).0, 0);
    assert_eq!(replay(&mut world, &with_error("timed out"), None, 10), (1, None));
    assert_eq!(alive(&mut world, &ids), [wanted], "upper and lower case differ");
    assert_eq!(replay(&mut world, &with_error(""), None, 10), (2, None));
    assert_eq!(alive(&mut world, &ids), ids, "every error holds the empty text");
}

pub fn the_text_of_an_error_is_compared_as_text_and_not_as_a_pattern<S: Subject>() {
    let mut world = World::<S>::new();
    let dull = world.dead(work(), "disk is 100 percent full (a-b) [c]");
    for pattern in ["100%", "a_b", "%", "_", ".*", "[a-z]", "\\", "*"] {
        assert_eq!(replay(&mut world, &with_error(pattern), None, 10).0, 0, "{pattern:?}");
    }
    assert_eq!(alive(&mut world, &[dull]), []);
    for text in UNUSUAL_TEXTS.into_iter().filter(|text| text.trim() != "") {
        let id = world.dead(work(), &format!("<{text}>"));
        let (count, _) = replay(&mut world, &with_error(&format!("<{text}>")), None, 10);
        assert_eq!(count, 1, "{text:?}");
        assert_eq!(alive(&mut world, &[id, dull]), [id], "{text:?}");
        let token = world.claim_one("w1").job.token();
        assert_eq!(token.job, id);
    }
}

pub fn the_latest_error_counts_and_not_an_earlier_one<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.dead(work(), "first trouble");
    assert_eq!(replay(&mut world, &with_error("first"), None, 10).0, 1);
    let token = world.claim_one("w1").job.token();
    world.settle(token, fail_for_good("second trouble")).expect("the holder reports");
    assert_eq!(replay(&mut world, &with_error("first"), None, 10).0, 0);
    assert_eq!(replay(&mut world, &with_error("second"), None, 10).0, 1);
    assert_eq!(world.job(id).generation, 2);
}

pub fn jobs_that_are_no_dead_letters_are_not_replayed<S: Subject>() {
    let mut world = World::<S>::new();
    let cancelled = world.cancelled(work());
    let done = world.done(work());
    let running = world.running(work()).job.id;
    let waiting = world.enqueue(work());
    let ids = [cancelled, done, running, waiting];
    let before = ids.map(|id| world.job(id));
    let out: Outcomes = world.commit(|batch| {
        batch.admin.push(Admin::ReplayDead { filter: own(), after: None, limit: 10 });
    });
    assert_eq!(out.admin, [Ok(AdminDone::Replayed { count: 0, next: None })]);
    assert!(!out.wrote, "there was nothing to replay");
    assert_eq!(ids.map(|id| world.job(id)), before);
}

// In the same batch.

pub fn a_job_replayed_or_deleted_in_the_same_batch_is_not_replayed_again<S: Subject>() {
    let mut world = World::<S>::new();
    let ids = dead_letters(&mut world, 3, "broken");
    let [single, deleted, bulk] = ids[..] else { panic!("three were made") };
    let all = || Admin::ReplayDead { filter: own(), after: None, limit: 10 };
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Replay(single), Admin::Delete(deleted), all(), all()]);
    });
    assert_eq!(replayed(out.admin[2].clone()).0, 1);
    assert_eq!(replayed(out.admin[3].clone()).0, 0);
    assert_eq!(alive(&mut world, &[single, bulk]), [single, bulk]);
    assert_eq!(world.find(deleted), None);
}

pub fn a_dead_letter_cancelled_in_the_same_batch_is_not_replayed<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.dead(work(), "broken");
    let all = Admin::ReplayDead { filter: own(), after: None, limit: 10 };
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Replay(id), Admin::Cancel(id), all]);
    });
    assert_eq!(replayed(out.admin[2].clone()).0, 0);
    let job = world.job(id);
    assert_eq!((job.state.name(), job.generation), (StateName::Cancelled, 1));
}

pub fn replayed_dead_letters_are_claimed_in_the_same_batch<S: Subject>() {
    let mut world = World::<S>::new();
    let ids = dead_letters(&mut world, 2, "broken");
    let out = world.commit(|batch| {
        batch.admin.push(Admin::ReplayDead { filter: own(), after: None, limit: 10 });
        batch.claims.push(claim_for(main_work(), "w1", 10));
    });
    let claimed: Vec<JobId> = out.claims[0].jobs.iter().map(|leased| leased.job.id).collect();
    assert_eq!(claimed, ids, "due at one instant, the older job goes first");
    assert_eq!(out.ready_queues, [queue("main")]);
}

// Discarding.

/// Discards one page: how many, and where to go on.
#[track_caller]
fn discard<S: Subject>(
    world: &mut World<S>,
    filter: &DeadFilter,
    after: Option<Cursor>,
    limit: usize,
) -> (usize, Option<Cursor>) {
    let filter = filter.clone();
    match world.admin(Admin::DiscardDead { filter, after, limit }) {
        Ok(AdminDone::Discarded { count, next }) => (count, next),
        other => panic!("the answer tells how many are gone, not {other:?}"),
    }
}

pub fn discarded_dead_letters_are_gone_with_their_attempts_and_no_others<S: Subject>() {
    let mut world = World::<S>::new();
    let gone = world.dead(work(), "refused");
    let kept = [world.dead(work(), "broken"), world.cancelled(work()), world.done(work())];
    let before = kept.map(|id| world.job(id));
    assert_eq!(discard(&mut world, &with_error("refused"), None, 10), (1, None));
    assert_eq!(world.find(gone), None);
    assert!(world.dump().attempts.iter().all(|attempt| attempt.job != gone));
    assert_eq!(kept.map(|id| world.job(id)), before);
    assert_eq!(discard(&mut world, &own(), None, 10), (1, None));
    assert_eq!(world.find(kept[0]), None);
}

pub fn a_page_of_discarded_dead_letters_ends_at_its_limit_and_goes_on_behind_it<S: Subject>() {
    let mut world = World::<S>::new();
    let ids = dead_letters(&mut world, 3, "broken");
    let (count, next) = discard(&mut world, &own(), None, 2);
    assert_eq!((count, next.is_some()), (2, true));
    let left: Vec<JobId> = ids.iter().copied().filter(|id| world.find(*id).is_some()).collect();
    assert_eq!(left, ids[..1], "the newest failures go first");
    assert_eq!(discard(&mut world, &own(), next, 2), (1, None));
    assert_eq!(world.find(ids[0]), None);
}

pub fn a_dead_letter_replayed_in_the_same_batch_is_not_discarded<S: Subject>() {
    let mut world = World::<S>::new();
    let id = world.dead(work(), "broken");
    let all = Admin::DiscardDead { filter: own(), after: None, limit: 10 };
    let out = world.commit(|batch| batch.admin.extend([Admin::Replay(id), all]));
    assert_eq!(out.admin[1], Ok(AdminDone::Discarded { count: 0, next: None }));
    assert_eq!(world.job(id).state.name(), StateName::Queued);
}
