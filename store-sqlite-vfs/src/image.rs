//! What a crash leaves of a log of operations. Safe code only; `lib.rs` describes the model.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::{fs, io};

use crate::disk::{FileId, Op};

/// The unit in which a write is torn.
const SECTOR: usize = 512;

/// What becomes of operations that no sync has covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// All are lost.
    LoseAll,
    /// All are kept, as after the kill of a process.
    KeepAll,
    /// Each is kept, dropped or torn, as this seed decides.
    Seed(u64),
}

/// The files that a crash leaves, by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Image {
    files: BTreeMap<String, Vec<u8>>,
}

impl Image {
    /// Writes the files into a directory that holds none of them.
    pub fn write_to(&self, dir: &Path) -> io::Result<()> {
        self.files.iter().try_for_each(|(name, content)| fs::write(dir.join(name), content))
    }

    /// The files with their content.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, content)| (name.as_str(), content.as_slice()))
    }

    /// A number that tells images apart.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Builds what a crash at the end of this log leaves.
pub(crate) fn build(log: &[Op], fate: Fate) -> Image {
    let durable = durable(log);
    let mut chance = Chance::new(fate);
    let mut entries = chance.entries_kept(log, &durable);
    let mut contents: BTreeMap<FileId, Vec<u8>> = BTreeMap::new();
    let mut names: BTreeMap<&str, FileId> = BTreeMap::new();
    for (op, durable) in log.iter().zip(durable) {
        match op {
            Op::Open { file, name, content, .. } => {
                contents.insert(*file, content.clone());
                if durable || take_one(&mut entries) {
                    names.insert(name, *file);
                }
            }
            Op::Delete { name, .. } => {
                if durable || take_one(&mut entries) {
                    names.remove(name.as_str());
                }
            }
            Op::Write { file, offset, data } => {
                let content = contents.entry(*file).or_default();
                for (at, piece) in sectors(*offset, data) {
                    // The first piece decides for all, unless the write is torn.
                    if durable || chance.keeps(at == *offset) {
                        put(content, at, piece);
                    }
                }
            }
            Op::Truncate { file, size } => {
                if durable || chance.keeps(true) {
                    contents.entry(*file).or_default().resize(*size, 0);
                }
            }
            Op::Sync { .. } | Op::SyncFailed { .. } => {}
        }
    }
    let content = |file: FileId| contents.get(&file).cloned().unwrap_or_default();
    let files = names.into_iter().map(|(name, file)| (name.to_string(), content(file))).collect();
    Image { files }
}

/// Which operations a sync has covered.
fn durable(log: &[Op]) -> Vec<bool> {
    let mut durable = vec![false; log.len()];
    let mut data: BTreeMap<FileId, Vec<usize>> = BTreeMap::new();
    let mut entries: Vec<usize> = Vec::new();
    for (at, op) in log.iter().enumerate() {
        let mut directory_synced = false;
        match op {
            Op::Open { found: true, .. } => durable[at] = true,
            Op::Open { found: false, .. } => entries.push(at),
            Op::Write { file, .. } | Op::Truncate { file, .. } => {
                data.entry(*file).or_default().push(at);
            }
            Op::Sync { file, directory } => {
                for covered in data.remove(file).unwrap_or_default() {
                    durable[covered] = true;
                }
                directory_synced = *directory;
            }
            Op::SyncFailed { file } => {
                data.remove(file);
            }
            Op::Delete { directory, .. } => {
                entries.push(at);
                directory_synced = *directory;
            }
        }
        if directory_synced {
            for covered in entries.drain(..) {
                durable[covered] = true;
            }
        }
    }
    durable
}

/// The parts of a write that lie in one sector each.
fn sectors(offset: usize, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = offset + at;
        let length = (SECTOR - start % SECTOR).min(data.len() - at);
        let piece = &data[at..at + length];
        at += length;
        (length > 0).then_some((start, piece))
    })
}

fn put(content: &mut Vec<u8>, at: usize, piece: &[u8]) {
    if content.len() < at + piece.len() {
        content.resize(at + piece.len(), 0);
    }
    content[at..at + piece.len()].copy_from_slice(piece);
}

fn take_one(left: &mut usize) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}

/// Decides what survives.
struct Chance {
    fate: Fate,
    /// Of splitmix64.
    state: u64,
    /// Of a hundred writes, how many are kept and how many are torn.
    kept: u64,
    torn: u64,
    /// What was decided for the operation at hand; none if it is torn.
    whole: Option<bool>,
}

impl Chance {
    fn new(fate: Fate) -> Self {
        let state = if let Fate::Seed(seed) = fate { seed } else { 0 };
        let mut chance = Self { fate, state, kept: 0, torn: 0, whole: None };
        let weathers = [(50, 25), (85, 10), (10, 20), (0, 100), (97, 0)];
        (chance.kept, chance.torn) = weathers[chance.below(weathers.len())];
        chance
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// How many pending entries of the directory survive, from the first on.
    fn entries_kept(&mut self, log: &[Op], durable: &[bool]) -> usize {
        let is_entry = |op: &Op| matches!(op, Op::Open { .. } | Op::Delete { .. });
        let pending = log.iter().zip(durable).filter(|(op, durable)| is_entry(op) && !**durable);
        match self.fate {
            Fate::LoseAll => 0,
            Fate::KeepAll => usize::MAX,
            Fate::Seed(_) => {
                let pending = pending.count();
                self.below(pending + 1)
            }
        }
    }

    /// Whether a piece survives; `first` is true at the first piece of an operation.
    fn keeps(&mut self, first: bool) -> bool {
        match self.fate {
            Fate::LoseAll => false,
            Fate::KeepAll => true,
            Fate::Seed(_) => {
                let roll = self.next() % 100;
                if first {
                    let torn = (self.kept..self.kept + self.torn).contains(&roll);
                    self.whole = (!torn).then_some(roll < self.kept);
                }
                self.whole.unwrap_or(self.next() & 1 == 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Shared;

    const FATES: [Fate; 2] = [Fate::LoseAll, Fate::KeepAll];

    /// Runs `then` on a disk that holds one durable file of four sectors of ones.
    #[track_caller]
    fn check(then: impl Fn(&Shared, FileId), expected: [&[u8]; 2]) {
        let disk = Shared::default();
        let file = disk.lock().opened("f", vec![1; 4 * SECTOR], true);
        then(&disk, file);
        for (fate, expected) in FATES.into_iter().zip(expected) {
            let now = disk.lock().operations();
            let image = disk.lock().image(now, fate);
            assert!(image.files["f"] == expected, "{fate:?}: {:?}", &image.files["f"][..8]);
        }
    }

    #[test]
    fn a_synced_write_survives_and_a_pending_one_may_not() {
        let written = [&[2][..], &[1; 4 * SECTOR - 1]].concat();
        check(|disk, file| disk.lock().wrote(file, 0, &[2]), [&[1; 4 * SECTOR], &written]);
        let sync = |disk: &Shared, file| {
            disk.lock().wrote(file, 0, &[2]);
            disk.lock().synced(file, false);
        };
        check(sync, [&written, &written]);
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_a_later_one() {
        let written = [&[2][..], &[1; 4 * SECTOR - 1]].concat();
        let lied = |disk: &Shared, file| {
            disk.lock().wrote(file, 0, &[2]);
            disk.lock().sync_failed(file);
            disk.lock().synced(file, false);
        };
        check(lied, [&[1; 4 * SECTOR], &written]);
        let again = |disk: &Shared, file| {
            lied(disk, file);
            disk.lock().wrote(file, 0, &[2]);
            disk.lock().synced(file, false);
        };
        check(again, [&written, &written]);
    }

    #[test]
    fn a_truncation_waits_for_its_sync() {
        let short = [1; SECTOR];
        check(|disk, file| disk.lock().truncated(file, SECTOR), [&[1; 4 * SECTOR], &short]);
        let synced = |disk: &Shared, file| {
            disk.lock().truncated(file, SECTOR);
            disk.lock().synced(file, false);
        };
        check(synced, [&short, &short]);
    }

    #[test]
    fn a_sync_of_another_file_helps_nothing() {
        let elsewhere = |disk: &Shared, file| {
            let other = disk.lock().opened("g", Vec::new(), true);
            disk.lock().wrote(file, 0, &[2; 4 * SECTOR]);
            disk.lock().synced(other, true);
        };
        check(elsewhere, [&[1; 4 * SECTOR], &[2; 4 * SECTOR]]);
    }

    #[test]
    fn writes_are_torn_between_sectors_and_never_within_one() {
        let disk = Shared::default();
        let file = disk.lock().opened("f", vec![1; 4 * SECTOR], true);
        disk.lock().wrote(file, 100, &[2; 3 * SECTOR]);
        let mut torn = 0;
        for seed in 0..200 {
            let image = disk.lock().image(2, Fate::Seed(seed));
            let content = &image.files["f"];
            assert_eq!((content[99], content[100 + 3 * SECTOR]), (1, 1), "seed {seed}");
            let parts = [100..SECTOR, SECTOR..2 * SECTOR, 2 * SECTOR..3 * SECTOR];
            for part in parts.clone() {
                let first = content[part.start];
                assert!(content[part].iter().all(|byte| *byte == first), "seed {seed}");
            }
            torn += usize::from(content[parts[0].start] != content[parts[1].start]);
        }
        assert!(torn > 10, "only {torn} of 200 writes were torn");
    }

    #[test]
    fn a_new_file_is_there_once_its_directory_was_synced() {
        let disk = Shared::default();
        let file = disk.lock().opened("f", Vec::new(), false);
        disk.lock().wrote(file, 0, &[1]);
        disk.lock().synced(file, false);
        assert!(disk.lock().image(3, Fate::LoseAll).files.is_empty());
        disk.lock().synced(file, true);
        assert_eq!(disk.lock().image(4, Fate::LoseAll).files["f"], [1]);
        disk.lock().deleted("f", false);
        assert_eq!(disk.lock().image(5, Fate::LoseAll).files["f"], [1]);
        assert!(disk.lock().image(5, Fate::KeepAll).files.is_empty());
    }
}
