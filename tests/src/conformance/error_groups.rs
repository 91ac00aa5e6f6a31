//! Error groups: counted in the commit that makes, replays or removes a dead letter, and listed by
//! an index of their own.

use windlass_core::limits::GROUP_KEPT;
use windlass_core::store::{Admin, AdminDone, Cursor, DeadFilter, Filter, Reader, Retention};
use windlass_core::{
    ErrorGroup, ErrorText, Failure, GroupId, GroupRow, JobId, Millis, NewJob, Verdict,
};

use crate::fixture::*;

/// The group of an error of `work()`.
fn group(error: &str) -> GroupId {
    ErrorGroup::of(&kind("work"), &ErrorText::of_message(error)).id
}

#[track_caller]
fn row<S: Subject>(world: &mut World<S>, id: GroupId) -> Option<GroupRow> {
    let row = world.reader().error_group(id).expect("it reads");
    let all = world.reader().error_groups().expect("it reads");
    assert!(all.is_sorted_by(|a, b| a.id < b.id), "groups are listed by id");
    assert_eq!(all.into_iter().find(|row| row.id == id), row, "a list shows what one read shows");
    row
}

/// The dead letters that a group counts.
#[track_caller]
fn live<S: Subject>(world: &mut World<S>, error: &str) -> Option<u64> {
    let id = group(error);
    row(world, id).map(|row| row.live)
}

fn of_group(id: GroupId) -> Filter {
    Filter { group: Some(id), ..Filter::default() }
}

pub fn dead_letters_with_one_reason_are_one_group<S: Subject>() {
    let mut world = World::<S>::new();
    let first = world.dead(work(), "no room on disk 1");
    let began = world.now();
    world.advance(Millis::seconds(1));
    let second = world.dead(work(), "no room on disk 22");
    world.dead(work(), "refused");
    let row = row(&mut world, group("no room on disk 7")).expect("it has dead letters");
    assert_eq!((row.live, row.title.to_string()), (2, "no room on disk {number}".into()));
    assert_eq!((row.first_at, row.last_at), (began, world.now()));
    assert_eq!((row.sample.as_str(), row.kind), ("no room on disk 22", kind("work")));
    assert_eq!(row.queues.named, [(queue("main"), 2)]);
    assert_eq!(row.hours.until(world.now()).iter().sum::<u32>(), 2);
    for id in [first, second] {
        assert_eq!(world.job(id).state.group(), Some(row.id));
    }
    world.check();
}

pub fn a_failure_that_is_tried_again_is_in_no_group<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    let before = world.dump().groups;
    world.settle(token, fail("flaky")).expect("the holder reports");
    assert_eq!(world.dump().groups, before);
}

pub fn an_expired_lease_and_a_command_have_groups_of_their_own<S: Subject>() {
    let mut world = World::<S>::new();
    let expired = world.running(NewJob { max_retries: Some(retries(0)), ..work() }).job.id;
    world.advance(Millis::hours(12));
    world.reap(reap_up_to(10));
    let command = world.running(work()).job.token();
    let stderr = Some(windlass_core::Excerpt::tail("reading 7\nno such file: /tmp/x1\n", 99));
    let failure = Failure { exit_code: Some(3), stderr, ..Failure::new("it exited").permanent() };
    world.settle(command, Verdict::Fail(Box::new(failure))).expect("the holder reports");
    let mut title = |id: JobId| {
        let group = world.job(id).state.group().expect("it is a dead letter");
        row(&mut world, group).expect("it is counted").title.to_string()
    };
    assert!(title(expired).starts_with("the lease ran out: worker {worker} sent no heartbeat"));
    assert_eq!(title(command.job), "exit code 3: no such file: {path}");
    world.check();
}

pub fn a_dead_letter_that_is_replayed_or_removed_leaves_its_group<S: Subject>() {
    let mut world = World::<S>::new();
    let ids: Vec<JobId> = (0..4).map(|_| world.dead(work(), "broken")).collect();
    world.admin(Admin::Replay(ids[0])).expect("it is dead");
    assert_eq!(live(&mut world, "broken"), Some(3));
    world.admin(Admin::Delete(ids[1])).expect("it is dead");
    assert_eq!(live(&mut world, "broken"), Some(2));
    world.advance(Millis::hours(1));
    let failed = Some(Millis::minutes(30));
    world.purge(Retention { failed, ..Retention::default() }, 10);
    let row = row(&mut world, group("broken")).expect("it is kept for a while");
    assert_eq!((row.live, row.queues.named.len()), (0, 0));
    assert_eq!(row.hours.until(world.now()).iter().sum::<u32>(), 4, "earlier failures still count");
    world.check();
}

pub fn a_job_that_fails_and_is_replayed_in_one_batch_is_in_no_group<S: Subject>() {
    let mut world = World::<S>::new();
    let token = world.running(work()).job.token();
    world.commit(|batch| {
        let verdict = fail_for_good("broken");
        batch.settles.push(windlass_core::store::Settle { token, verdict });
        batch.admin.push(Admin::Replay(token.job));
    });
    assert_eq!(live(&mut world, "broken"), None);
    world.check();
}

pub fn a_group_lists_its_dead_letters_newest_first_page_by_page<S: Subject>() {
    let mut world = World::<S>::new();
    let mut ids = Vec::new();
    for at in 0..7 {
        world.advance(Millis::seconds(1));
        ids.push(world.dead(if at == 3 { work_in("side") } else { work() }, &format!("no {at}")));
        world.dead(work(), "another");
    }
    ids.reverse();
    let filter = of_group(group("no 1"));
    let (mut found, mut after): (Vec<JobId>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = world.reader().list(&filter, after, 2).expect("it reads");
        found.extend(page.jobs.iter().map(|job| job.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, ids);
    let side = Filter { queue: Some(queue("side")), ..filter };
    let page = world.reader().list(&side, None, 2).expect("it reads");
    assert_eq!(page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[3]]);
    let none = world.reader().list(&of_group(GroupId::LOST), None, 2).expect("it reads");
    assert_eq!(none.jobs, []);
}

pub fn a_group_is_replayed_and_discarded_without_the_others<S: Subject>() {
    let mut world = World::<S>::new();
    for error in ["no 1", "no 2", "another", "no 3"] {
        world.advance(Millis::seconds(1));
        world.dead(work(), error);
    }
    let filter = DeadFilter { group: Some(group("no 1")), ..DeadFilter::default() };
    let replay = Admin::ReplayDead { filter: filter.clone(), after: None, limit: 2 };
    match world.admin(replay) {
        Ok(AdminDone::Replayed { count: 2, next: Some(_) }) => {}
        other => panic!("two are replayed, and there are more: {other:?}"),
    }
    match world.admin(Admin::DiscardDead { filter, after: None, limit: 10 }) {
        Ok(AdminDone::Discarded { count: 1, next: None }) => {}
        other => panic!("the last one is discarded: {other:?}"),
    }
    assert_eq!((live(&mut world, "no 1"), live(&mut world, "another")), (Some(0), Some(1)));
    world.check();
}

pub fn a_reason_without_room_joins_the_group_of_its_kind<S: Subject>() {
    let mut world = World::<S>::new();
    let others = world.reader().error_groups().expect("it reads").len();
    world.policy.max_error_groups = others + 1;
    world.dead(work(), "first");
    let second = world.dead(work(), "second");
    world.dead(work(), "third");
    world.dead(work(), "first");
    let other = ErrorGroup::other(&kind("work"));
    assert_eq!(world.job(second).state.group(), Some(other.id));
    let row = row(&mut world, other.id).expect("it is counted");
    assert_eq!((row.live, row.sample.as_str(), row.title), (2, "third", other.title));
    assert_eq!((live(&mut world, "first"), live(&mut world, "second")), (Some(2), None));
    world.check();
}

pub fn a_group_without_dead_letters_is_removed_a_week_after_its_last_failure<S: Subject>() {
    let mut world = World::<S>::new();
    let (kept, gone) = (world.dead(work(), "kept"), world.dead(work(), "gone"));
    world.admin(Admin::Replay(gone)).expect("it is dead");
    world.advance(Millis::new(GROUP_KEPT.get() - 1));
    world.purge(Retention::default(), 10);
    assert_eq!(live(&mut world, "gone"), Some(0));
    world.advance(Millis::new(1));
    world.purge(Retention::default(), 10);
    assert_eq!((live(&mut world, "gone"), live(&mut world, "kept")), (None, Some(1)));
    assert!(world.find(kept).is_some());
    world.check();
}

pub fn groups_survive_a_reopening<S: Subject>() {
    let mut world = World::<S>::new();
    world.dead(work(), "broken");
    let before = row(&mut world, group("broken"));
    world.reopen();
    assert_eq!(row(&mut world, group("broken")), before);
    world.check();
}
