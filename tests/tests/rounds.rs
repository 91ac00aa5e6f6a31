//! How often a batch asks the store before it is decided: on a server each round of questions is a
//! round trip. One is the rule; a batch asks again only for reasons that are named here, and no
//! more often than they say.

mod subject;

use std::cell::RefCell;
use std::collections::BTreeMap;

use windlass_core::bulk::Action;
use windlass_core::store::{Admin, Batch, Change, Dump, Heartbeat, Outcomes, Purge, Settle};
use windlass_core::{
    Demand, Gate, Job, Kind, Millis, NewJob, QueueRow, StateName, Usage, View, Wall, When,
};
use windlass_store_memory::MemoryStore;
use windlass_tests::differential::count_rounds;
use windlass_tests::fixture::*;

use subject::Memory;

/// Commits a batch; returns the number of rounds it took.
fn rounds(world: &mut World<Memory>, fill: impl FnOnce(&mut Batch)) -> u64 {
    let before = world.store().rounds();
    world.commit(fill);
    world.store().rounds() - before
}

fn claim(batch: &mut Batch, max: usize) {
    batch.claims.push(claim_for(main_work(), "w1", max));
}

fn backlog(world: &mut World<Memory>, count: usize) {
    world.commit(|batch| batch.enqueues.extend(std::iter::repeat_n(work(), count)));
}

#[test]
fn an_ordinary_batch_asks_once() {
    let mut world = World::new();
    let tokens = ["w1", "w2"].map(|name| world.running_by(name, work()).job.token());
    world.enqueue(work_keyed("k"));
    backlog(&mut world, 10);
    let asked = rounds(&mut world, |batch| {
        batch.settles.push(Settle { token: tokens[0], verdict: complete_with("1") });
        batch.heartbeats.push(Heartbeat {
            token: tokens[1],
            extend: None,
            progress: Some(text("2")),
        });
        batch.enqueues.extend([work(), work_keyed("k"), work_keyed("new"), work_in("new")]);
        batch.reap = Some(reap_up_to(10));
        batch.promote = Some(10);
        claim(batch, 5);
    });
    assert_eq!(asked, 1);
}

#[test]
fn a_claim_that_finds_less_than_it_wants_asks_once() {
    let mut world = World::new();
    assert_eq!(rounds(&mut world, |batch| claim(batch, 5)), 1);
    backlog(&mut world, 3);
    assert_eq!(rounds(&mut world, |batch| claim(batch, 5)), 1);
    let asked = rounds(&mut world, |batch| {
        batch.enqueues.extend([work(), work()]);
        claim(batch, 5);
    });
    assert_eq!(asked, 1, "new jobs are claimed without another look");
}

#[test]
fn a_promotion_with_a_claim_of_what_fell_due_asks_for_the_payloads_too() {
    let mut world = World::new();
    let later = NewJob { when: When::After(delay(TICK)), ..work() };
    world.commit(|batch| batch.enqueues.extend([later.clone(), later]));
    world.advance(TICK);
    let asked = rounds(&mut world, |batch| {
        batch.promote = Some(10);
        claim(batch, 5);
    });
    assert_eq!(asked, 2);
}

#[test]
fn a_purge_asks_a_second_time_for_the_keys_of_what_it_removes() {
    let age = Millis::hours(1);
    let purge = |batch: &mut Batch| {
        batch.purge = Some(Purge { retention: keep_all_for(age), limit: 10 });
    };
    for (new, expected) in [(work(), 1), (work_keyed("k"), 2)] {
        let mut world = World::new();
        world.done(new);
        world.advance(age);
        assert_eq!(rounds(&mut world, purge), expected);
    }
}

#[test]
fn a_claim_from_a_queue_that_the_batch_opened_asks_twice() {
    let mut world = World::new();
    backlog(&mut world, 3);
    world.admin(Admin::pause(queue("main"))).expect("a queue can be paused");
    let asked = rounds(&mut world, |batch| {
        batch.admin.push(Admin::Resume(queue("main")));
        claim(batch, 2);
    });
    assert_eq!(asked, 2);
}

#[test]
fn claims_whose_demands_overlap_ask_twice() {
    let mut world = World::new();
    backlog(&mut world, 6);
    let asked = rounds(&mut world, |batch| {
        claim(batch, 2);
        claim(batch, 2);
    });
    assert_eq!(asked, 2);
}

/// Why a batch may ask again: for each reason, the number of rounds that it may cost. Without a
/// reason a batch asks once.
#[derive(Debug, Default)]
struct Reasons {
    /// The keys of jobs that it removes, the rows of figures into which it folds others.
    looked_up: usize,
    /// More candidates: one round for each that the batch itself took away, one if an operator
    /// closed a queue or an earlier claim may have taken some.
    refills: usize,
    /// Queues that reached their limit: the candidates behind theirs are asked for.
    limits: usize,
    /// Candidates of queues that the batch opened.
    opened: usize,
    /// Payloads of jobs that the batch made ready, again for each queue that reached its limit.
    payloads: usize,
    /// Error groups: those of jobs that became dead letters or no longer are, and those that are
    /// idle; one more round where there is no room for a new group.
    groups: usize,
}

impl Reasons {
    fn of(batch: &Batch, out: &Outcomes, stored: [&Dump; 2]) -> Self {
        let mut reasons = Self {
            looked_up: usize::from(looks_up(batch)),
            groups: most_of_groups(batch, out, stored),
            ..Self::default()
        };
        for claim in batch.claims.iter().filter(|claim| claim.takers.iter().any(|one| one.max > 0))
        {
            reasons.add_claim(batch, out, &claim.demand, stored);
        }
        reasons
    }

    fn add_claim(&mut self, batch: &Batch, out: &Outcomes, demand: &Demand, stored: [&Dump; 2]) {
        let [full_before, full_after] = stored.map(|dump| closed(dump, demand, out.now));
        let any = |wanted: fn(&Admin) -> bool| batch.admin.iter().any(wanted);
        let closes = any(|one| matches!(one, Admin::Pause { .. } | Admin::SetQueue { .. }));
        // A queue that is made again is not paused any more.
        let opens = any(|one| {
            matches!(one, Admin::Resume(_) | Admin::SetQueue { .. } | Admin::DeleteQueue(_))
        });
        let (gone, made_ready) = moved_by_batch(out, demand, stored);
        self.refills += gone + usize::from(closes || batch.claims.len() > 1);
        self.limits += full_after;
        self.opened += usize::from(opens || full_before > 0);
        self.payloads += if made_ready { 1 + full_after } else { 0 };
    }

    /// The most rounds that the batch may take: the first, and those of its reasons.
    fn most(&self) -> u64 {
        let Self { looked_up, refills, limits, opened, payloads, groups } = self;
        1 + (looked_up + refills + limits + opened + payloads + groups) as u64
    }
}

/// Whether a batch may ask for the keys of jobs that it removes, or for the rows of figures into
/// which it folds others.
fn looks_up(batch: &Batch) -> bool {
    let removes = |one: &Admin| {
        matches!(one, Admin::Delete(_) | Admin::DiscardDead { .. } | Admin::ReplayDead { .. })
    };
    let deletes = batch.bulk.iter().any(|step| step.action == Action::Delete);
    batch.purge.is_some() || deletes || batch.admin.iter().any(removes)
}

/// The number of limits and rates of a demand's queues and kinds that keep jobs waiting.
fn closed(dump: &Dump, demand: &Demand, now: Wall) -> usize {
    let wanted = dump.queues.iter().filter(|row| demand.queues.includes(&row.queue.name));
    let closed = wanted.map(|QueueRow { queue, kinds, tats }| {
        let usage = Usage::new(kinds.iter().map(|(kind, counts)| (kind, counts)), tats.clone());
        let gate = queue.gate(&usage.of(&Kind::default()), now);
        let of_kinds = queue.settings.flow.kinds.iter();
        let of_kinds =
            of_kinds.filter(|(kind, _)| queue.gate_of(kind, &usage.of(kind), now) != Gate::Open);
        usize::from(!matches!(gate, Gate::Open | Gate::Paused)) + of_kinds.count()
    });
    closed.sum()
}

/// How many jobs of a demand were ready before the batch, and are neither ready nor claimed now;
/// and whether the batch claimed one that was stored but not ready before.
fn moved_by_batch(out: &Outcomes, demand: &Demand, [before, after]: [&Dump; 2]) -> (usize, bool) {
    let (mut gone, mut made_ready) = (0, false);
    for change in out.changes.iter().filter(|change| demand.wants(&change.queue, &change.kind)) {
        let Some(row) = before.jobs.iter().find(|row| row.job.id == change.id) else { continue };
        let was_ready = row.job.state.view() == View::Queued;
        let claimed = change.to == Some(StateName::Processing);
        gone += usize::from(was_ready && !claimed);
        made_ready |= claimed && !was_ready;
    }
    // One that was cancelled and replayed was taken away as well, and put back behind others.
    let replayed = before.jobs.iter().map(|row| &row.job).filter(|job| {
        let moved = |now: &Job| {
            job.rank != now.rank && matches!(now.state.view(), View::Queued | View::Processing)
        };
        let now = after.jobs.iter().map(|row| &row.job).find(|now| now.id == job.id);
        job.state.view() == View::Queued && now.is_some_and(moved)
    });
    gone += replayed.count();
    (gone, made_ready)
}

/// How often a batch may ask for error groups: once if a job became a dead letter or no longer is
/// one, or if a group was idle for so long that it goes; once more where there is no room for a new
/// group.
fn most_of_groups(batch: &Batch, out: &Outcomes, [before, after]: [&Dump; 2]) -> usize {
    let failed = |change: &Change| {
        (change.from == Some(StateName::Failed)) != (change.to == Some(StateName::Failed))
    };
    let idle = batch.purge.is_some() && before.groups.iter().any(|row| row.is_removable(out.now));
    if !idle && !out.changes.iter().any(failed) {
        return 0;
    }
    // There may have been none before idle ones went.
    let full = |dump: &Dump| dump.groups.len() >= batch.policy.max_error_groups;
    1 + usize::from(full(before) || full(after))
}

/// Whether a batch does what batches of production mostly do: no operator, no purge, one claim, and
/// no job fails for good.
fn is_ordinary(batch: &Batch, out: &Outcomes) -> bool {
    let fails = out.changes.iter().any(|change| change.to == Some(StateName::Failed));
    let quiet = batch.admin.is_empty() && batch.bulk.is_empty() && batch.purge.is_none();
    quiet && batch.claims.len() <= 1 && !fails
}

/// Number of batches by the number of their rounds.
#[derive(Default)]
struct Rounds(BTreeMap<u64, u64>);

impl Rounds {
    fn add(&mut self, rounds: u64) {
        *self.0.entry(rounds).or_default() += 1;
    }

    /// Of a thousand batches, those with at most this many rounds.
    fn permille(&self, rounds: u64) -> u64 {
        let all: u64 = self.0.values().sum();
        self.0.range(..=rounds).map(|(_, count)| count * 1_000).sum::<u64>() / all.max(1)
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the distribution, for who asks with --nocapture")]
fn a_random_batch_asks_once_and_again_only_for_a_reason_that_it_has() {
    let all = RefCell::<Rounds>::default();
    let ordinary = RefCell::<Rounds>::default();
    // The rounds that batches may take and do not: if there are many, the reasons say too little.
    let slack = RefCell::<Rounds>::default();
    count_rounds(MemoryStore::new, 1_000, MemoryStore::rounds, |rounds, batch, out, stored| {
        all.borrow_mut().add(rounds);
        if is_ordinary(batch, out) {
            ordinary.borrow_mut().add(rounds);
        }
        let reasons = Reasons::of(batch, out, stored);
        let most = reasons.most();
        slack.borrow_mut().add(most.saturating_sub(rounds));
        (rounds <= most)
            .then_some(())
            .ok_or_else(|| format!("{rounds} rounds, {most} for {reasons:?}: {batch:?}"))
    });
    let [all, ordinary, slack] = [all, ordinary, slack].map(RefCell::into_inner);
    println!("all: {:?}\nordinary: {:?}\nslack: {:?}", all.0, ordinary.0, slack.0);
    // Random batches remove, fail and replay jobs far more often than real ones do.
    assert!(all.permille(2) >= 850, "{:?}", all.0);
    assert!(ordinary.permille(1) >= 880 && ordinary.permille(2) >= 980, "{:?}", ordinary.0);
    // Many batches have a reason to ask again and find all in the first round.
    assert!(slack.permille(1) >= 550 && slack.permille(3) >= 880, "{:?}", slack.0);
}
