//! A hundred thousand dead letters, made of the corpus: each counted once, in the group of its
//! text.

use std::collections::BTreeMap;

use windlass_core::limits::OUTPUT_BYTES;
use windlass_core::store::{Reader, Settle, audit};
use windlass_core::{Excerpt, Failure, GroupId, MaxRetries, NewJob, Verdict};
use windlass_tests::fixture::{World, claim_for, main_work, retries, work};

use crate::subject::Memory;
use crate::{Entry, corpus, group};

const LETTERS: usize = 100_000;
/// Jobs of one batch.
const BATCH: usize = 1_000;

fn failure(entry: &Entry) -> Failure {
    match entry.exit_code {
        None => Failure::new(&entry.text),
        code => Failure {
            exit_code: code,
            stderr: Some(Excerpt::tail(&entry.text, OUTPUT_BYTES)),
            ..Failure::new("it failed")
        },
    }
}

#[test]
fn a_hundred_thousand_dead_letters_are_counted_exactly_in_the_groups_of_their_texts() {
    let blocks: Vec<Vec<Entry>> = corpus().into_iter().map(|(_, entries)| entries).collect();
    assert!(blocks.len() >= 50);
    let nth = |n: usize| {
        let block = &blocks[n % blocks.len()];
        &block[n / blocks.len() % block.len()]
    };
    let kind = "k";
    let none: MaxRetries = retries(0);
    let job =
        NewJob { max_retries: Some(none), kind: windlass_tests::fixture::kind(kind), ..work() };
    let mut wanted: BTreeMap<GroupId, u64> = BTreeMap::new();
    let mut world = World::<Memory>::new();
    let before: u64 = world.dump().groups.iter().map(|group| group.live).sum();
    for first in (0..LETTERS).step_by(BATCH) {
        let out = world.load(|batch| {
            batch.enqueues = vec![job.clone(); BATCH];
            batch.claims.push(claim_for(main_work(), "w", BATCH));
        });
        let claimed = &out.claims[0].jobs;
        assert_eq!(claimed.len(), BATCH);
        world.load(|batch| {
            for (n, leased) in (first..).zip(claimed) {
                let entry = nth(n);
                *wanted.entry(group(entry).id).or_default() += 1;
                let verdict = Verdict::Fail(Box::new(failure(entry)));
                batch.settles.push(Settle { token: leased.job.token(), verdict });
            }
        });
    }
    assert_eq!(wanted.len(), blocks.len(), "each block is a group");
    let dump = world.dump();
    let found: BTreeMap<GroupId, u64> = dump
        .groups
        .iter()
        .filter(|row| row.kind.as_str() == kind)
        .map(|row| (row.id, row.live))
        .collect();
    assert_eq!(found, wanted);
    let after: u64 = dump.groups.iter().map(|group| group.live).sum();
    assert_eq!(after - before, LETTERS as u64, "each was counted once");
    assert_eq!(audit(&dump), [], "the counts are those of the rows");
    assert_eq!(world.store().verify(), [] as [String; 0]);
    let listed = world.reader().error_groups().expect("it reads").len();
    assert_eq!(listed, dump.groups.len());
}
