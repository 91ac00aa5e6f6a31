//! Queues that go: deleted by an operator, or by the sweep because they hold nothing.

use windlass_core::store::{
    Admin, AdminDone, AdminRefused, Batch, QueueSweep, QueuesSwept, Reader, Store, TooManyQueues,
};
use windlass_core::{Queue, QueueName, QueueSettings, StateName};

use crate::fixture::*;

fn delete(name: &str) -> Admin {
    Admin::DeleteQueue(queue(name))
}

fn sweep<S: Subject>(
    world: &mut World<S>,
    after: Option<&str>,
    limit: usize,
) -> (Vec<String>, Option<QueueName>) {
    let after = after.map(queue);
    let out = world.commit(|batch| batch.queue_sweep = Some(QueueSweep { after, limit }));
    let swept = out.queues_swept.expect("a batch that asks for a sweep has a result of it");
    (swept.deleted.iter().map(ToString::to_string).collect(), swept.next)
}

fn limited() -> QueueSettings {
    QueueSettings { max_queued: Some(max_queued(3)), ..QueueSettings::default() }
}

/// The names of the queues that are stored.
fn names<S: Subject>(world: &mut World<S>) -> Vec<String> {
    world.dump().queues.iter().map(|row| row.queue.name.to_string()).collect()
}

/// Has a queue that has had a job, and has none any more.
fn empty<S: Subject>(world: &mut World<S>, name: &str) {
    let id = world.done(work_in(name));
    assert_eq!(world.admin(Admin::Delete(id)), Ok(AdminDone::Deleted));
}

pub fn a_queue_without_jobs_is_deleted_with_its_settings<S: Subject>() {
    let mut world = World::<S>::alone();
    world.admin(Admin::set_queue(queue("q"), limited())).expect("the queue takes settings");
    world.admin(Admin::pause(queue("q"))).expect("the queue is paused");
    assert_eq!(world.admin(delete("q")), Ok(AdminDone::QueueDeleted));
    assert_eq!(names(&mut world), [""; 0]);
    world.reopen();
    assert_eq!(names(&mut world), [""; 0]);
    assert_eq!(world.admin(delete("q")), Err(AdminRefused::NoQueue(queue("q"))));
}

pub fn a_queue_with_a_job_in_any_state_is_not_deleted<S: Subject>() {
    let mut world = World::<S>::new();
    world.enqueue(work_in("queued"));
    world.running(work_in("running"));
    world.done(work_in("done"));
    world.dead(work_in("dead"), "no");
    world.cancelled(work_in("cancelled"));
    for name in ["queued", "running", "done", "dead", "cancelled"] {
        let before = world.dump();
        assert_eq!(world.admin(delete(name)), Err(AdminRefused::QueueHasJobs { jobs: 1 }));
        assert_eq!(world.dump(), before, "nothing of queue {name} has changed");
    }
}

pub fn a_queue_whose_last_job_goes_in_the_same_batch_is_deleted<S: Subject>() {
    let mut world = World::<S>::alone();
    let id = world.enqueue(work_in("q"));
    let out = world.commit(|batch| {
        batch.admin.extend([Admin::Cancel(id), Admin::Delete(id), delete("q")]);
    });
    assert_eq!(out.admin[2], Ok(AdminDone::QueueDeleted));
    assert_eq!(names(&mut world), [""; 0]);
    assert!(world.find(id).is_none());
}

pub fn a_deleted_queue_is_made_again_without_settings<S: Subject>() {
    let mut world = World::<S>::alone();
    world.admin(Admin::set_queue(queue("q"), limited())).expect("the queue takes settings");
    // In the batch that deletes it, and in a later one.
    for later in [false, true] {
        world.admin(Admin::pause(queue("q"))).expect("the queue is paused");
        if later {
            assert_eq!(world.admin(delete("q")), Ok(AdminDone::QueueDeleted));
        }
        let out = world.commit(|batch| {
            batch.admin.extend((!later).then(|| delete("q")));
            batch.enqueues.extend([work_in("q"), work_in("q")]);
            batch.claims.push(claim_for(work_of_queues(&["q"]), "w1", 1));
        });
        assert_eq!(out.claims[0].jobs.len(), 1, "it is not paused any more");
        let rows = world.dump().queues;
        assert_eq!(rows[0].queue, Queue::new(queue("q")));
        let token = out.claims[0].jobs[0].job.token();
        assert_eq!(world.settle(token, complete()), Ok(StateName::Done));
        let jobs: Vec<_> = world.dump().jobs.iter().map(|row| row.job.id).collect();
        world.commit(|batch| {
            batch.admin.extend(jobs.iter().copied().map(Admin::Cancel));
            batch.admin.extend(jobs.iter().copied().map(Admin::Delete));
        });
    }
}

pub fn a_queue_made_after_another_was_deleted_shares_nothing_with_it<S: Subject>() {
    let mut world = World::<S>::alone();
    let mut reader = world.reader();
    empty(&mut world, "old");
    assert!(reader.queue(&queue("old")).expect("it can be read").is_some());
    assert_eq!(world.admin(delete("old")), Ok(AdminDone::QueueDeleted));
    let id = world.enqueue(work_in("new"));
    let read = |reader: &mut <S::Store as Store>::Reader, name: &str| {
        reader.queue(&queue(name)).expect("it can be read").map(|row| row.total().all())
    };
    assert_eq!((read(&mut reader, "old"), read(&mut reader, "new")), (None, Some(1)));
    world.enqueue(work_in("old"));
    assert_eq!((read(&mut reader, "old"), read(&mut reader, "new")), (Some(1), Some(1)));
    let claimed = world.claim(work_of_queues(&["new"]), "w1", 5);
    assert_eq!(super::ids(&claimed), [id]);
}

pub fn a_deleted_queue_makes_room_for_another<S: Subject>() {
    let mut world = World::<S>::alone();
    world.policy.max_queues = 2;
    for name in ["a", "b"] {
        world.admin(Admin::Resume(queue(name))).expect("there is room");
    }
    let too_many = TooManyQueues { limit: 2 };
    assert_eq!(world.try_enqueue(work_in("c")), Err(too_many.into()));
    assert!(too_many.to_string().contains("max_queues"), "the setting is named");
    let out = world.commit(|batch| {
        batch.admin.extend([delete("a"), Admin::Resume(queue("c")), Admin::Resume(queue("a"))]);
    });
    assert!(out.admin[1].is_ok());
    assert_eq!(out.admin[2], Err(too_many.into()));
    assert_eq!(names(&mut world), ["b", "c"]);
    world.enqueue(work_in("default"));
    assert_eq!(names(&mut world), ["b", "c", "default"], "this one is made in any case");
    // Once, a store that found every queue that was named did not count them.
    let out = world.commit(|batch| batch.admin.extend([delete("b"), Admin::Resume(queue("b"))]));
    assert_eq!(out.admin[1], Err(too_many.into()), "two are left");
    assert_eq!(names(&mut world), ["c", "default"]);
}

// The sweep.

pub fn queues_that_hold_nothing_vanish<S: Subject>() {
    let mut world = World::<S>::alone();
    empty(&mut world, "empty");
    world.admin(Admin::Resume(queue("never-used"))).expect("the queue is made");
    world.enqueue(work_in("used"));
    assert_eq!(sweep(&mut world, None, 10), (vec!["empty".into(), "never-used".into()], None));
    assert_eq!(names(&mut world), ["used"]);
    assert_eq!(sweep(&mut world, None, 10), (vec![], None));
}

pub fn a_paused_queue_or_one_with_settings_does_not_vanish<S: Subject>() {
    let mut world = World::<S>::alone();
    world.admin(Admin::pause(queue("paused"))).expect("the queue is paused");
    world.admin(Admin::set_queue(queue("set"), limited())).expect("the queue takes settings");
    assert_eq!(sweep(&mut world, None, 10), (vec![], None));
    assert_eq!(names(&mut world), ["paused", "set"]);
    world.admin(Admin::Resume(queue("paused"))).expect("the queue goes on");
    let none = Admin::set_queue(queue("set"), QueueSettings::default());
    world.admin(none).expect("the queue takes settings");
    assert_eq!(sweep(&mut world, None, 10).0, ["paused", "set"]);
}

pub fn a_queue_that_gets_a_job_or_a_setting_in_the_same_batch_does_not_vanish<S: Subject>() {
    let mut world = World::<S>::alone();
    for name in ["job", "pause", "set"] {
        empty(&mut world, name);
    }
    let out = world.commit(|batch: &mut Batch| {
        batch.enqueues.push(work_in("job"));
        batch.admin.push(Admin::pause(queue("pause")));
        batch.admin.push(Admin::set_queue(queue("set"), limited()));
        batch.queue_sweep = Some(QueueSweep { after: None, limit: 10 });
    });
    assert_eq!(out.queues_swept, Some(QueuesSwept { deleted: vec![], next: None }));
    assert_eq!(names(&mut world), ["job", "pause", "set"]);
}

pub fn a_sweep_looks_at_a_page_of_queues_and_says_where_to_go_on<S: Subject>() {
    let mut world = World::<S>::alone();
    for name in ["a", "c", "d"] {
        empty(&mut world, name);
    }
    world.enqueue(work_in("b"));
    assert_eq!(sweep(&mut world, None, 2), (vec!["a".into()], Some(queue("b"))));
    assert_eq!(sweep(&mut world, Some("b"), 2), (vec!["c".into(), "d".into()], Some(queue("d"))));
    assert_eq!(sweep(&mut world, Some("d"), 2), (vec![], None));
    assert_eq!(names(&mut world), ["b"]);
}
