//! A store on a disk that is watched: what was acknowledged where, and whether what a crash leaves
//! keeps every promise.

use tempfile::TempDir;
use windlass_core::store::{Dump, Reader, Store};
use windlass_store_sqlite::SqliteStore;
use windlass_store_sqlite_vfs::{Disk, Fate, Image};
use windlass_tests::on_disk::scratch;

use crate::story::{Act, perform};

pub(crate) const FILE: &str = "jobs.db";

/// How many seeds to try at each place; the environment can ask for more.
pub(crate) fn seeds(fewest: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the edge of a test: how long it may take")]
    let asked = std::env::var("WINDLASS_ROUNDS");
    asked.ok().and_then(|text| text.parse().ok()).map_or(fewest, |asked: u64| asked.max(fewest))
}

/// A store that writes to a watched disk.
#[derive(Debug)]
pub(crate) struct Watched {
    /// None while it is closed. Dropped before the disk.
    pub(crate) store: Option<SqliteStore>,
    pub(crate) disk: Disk,
    pub(crate) dir: TempDir,
}

impl Watched {
    /// An empty store.
    pub(crate) fn fresh() -> Self {
        let mut watched = Self::closed();
        watched.open();
        watched
    }

    /// A disk without a store.
    pub(crate) fn closed() -> Self {
        Self { store: None, disk: Disk::new(), dir: scratch() }
    }

    /// The disk of a machine that comes back after a crash.
    pub(crate) fn after(image: &Image) -> Self {
        let watched = Self { store: None, disk: Disk::after(image), dir: scratch() };
        image.write_to(watched.dir.path()).expect("an image can be written");
        watched
    }

    pub(crate) fn open(&mut self) {
        let opened = SqliteStore::open_with_vfs(self.dir.path().join(FILE), self.disk.vfs());
        self.store = Some(opened.expect("the store opens"));
    }

    pub(crate) fn store(&mut self) -> &mut SqliteStore {
        self.store.as_mut().expect("the store is open")
    }

    pub(crate) fn dump(&mut self) -> Dump {
        dump(self.store())
    }
}

pub(crate) fn dump(store: &SqliteStore) -> Dump {
    let mut reader = store.reader().expect("a healthy store gives readers");
    reader.dump().expect("a healthy store can be dumped")
}

/// What had happened when an act came back.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// The place in the log of the disk.
    pub(crate) at: usize,
    pub(crate) dump: Dump,
}

/// A story that was played from an empty directory to the closing of the store.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) disk: Disk,
    /// First the empty store, last the closed one.
    pub(crate) steps: Vec<Step>,
}

/// Plays a story; `prepare` may set faults on the disk before.
pub(crate) fn play(story: &[Act], prepare: impl FnOnce(&Disk)) -> Played {
    let mut watched = Watched::closed();
    prepare(&watched.disk);
    watched.open();
    let mut steps = Vec::new();
    let mut note = |name, watched: &mut Watched| {
        let at = watched.disk.now();
        steps.push(Step { name, at, dump: watched.dump() });
    };
    note("open", &mut watched);
    for act in story {
        perform(watched.store(), act).expect("a healthy store commits");
        note(act.name(), &mut watched);
    }
    let dump = watched.dump();
    watched.store = None;
    steps.push(Step { name: "close", at: watched.disk.now(), dump });
    Played { disk: watched.disk, steps }
}

impl Played {
    /// The number of the step that was on its way at a place.
    pub(crate) fn next(&self, at: usize) -> usize {
        self.steps.iter().position(|step| step.at > at).unwrap_or(self.steps.len() - 1)
    }

    /// The state that was acknowledged at a place, and the one that was on its way.
    pub(crate) fn allowed(&self, at: usize) -> (&Dump, &Dump) {
        let next = self.next(at);
        (&self.steps[next.saturating_sub(1)].dump, &self.steps[next].dump)
    }

    /// Opens what a crash at this place leaves, and checks every promise.
    pub(crate) fn check(&self, at: usize, image: &Image) -> Result<(), String> {
        let (before, after) = self.allowed(at);
        compare(&recover(image)?, before, after)
    }
}

/// What an ordinary store finds in the files that a crash left; they must agree with themselves.
pub(crate) fn recover(image: &Image) -> Result<Dump, String> {
    let dir = scratch();
    image.write_to(dir.path()).expect("an image can be written");
    let store = SqliteStore::open(dir.path().join(FILE)).map_err(|error| error.to_string())?;
    let found = store.verify().map_err(|error| error.to_string())?;
    if !found.is_empty() {
        return Err(format!("it contradicts itself: {found:?}"));
    }
    let dump = store.reader().and_then(|mut reader| reader.dump());
    dump.map_err(|error| error.to_string())
}

/// Whether a state is one of two; if not, which promise is broken.
pub(crate) fn compare(found: &Dump, before: &Dump, after: &Dump) -> Result<(), String> {
    if found == before || found == after {
        return Ok(());
    }
    for promised in &before.jobs {
        let id = promised.job.id;
        let may_be_gone = !after.jobs.iter().any(|row| row.job.id == id);
        match found.jobs.iter().find(|row| row.job.id == id) {
            None if !may_be_gone => return Err(format!("acknowledged job {id} is lost")),
            Some(row) if row.payload != promised.payload => {
                return Err(format!("the payload of job {id} is another"));
            }
            Some(row) if row.job.epoch < promised.job.epoch => {
                return Err(format!("the epoch of job {id} went back"));
            }
            _ => {}
        }
    }
    Err(format!("neither the state before nor the one after:\n{found}\nbefore:\n{before}"))
}

/// The fates to try at each place: the extremes, and some seeds that differ from place to place.
pub(crate) fn fates(at: usize, seeds: u64) -> impl Iterator<Item = Fate> {
    let first = u64::try_from(at).unwrap_or(0) * 1_000;
    let seeded = (first..first + seeds).map(Fate::Seed);
    [Fate::LoseAll, Fate::KeepAll].into_iter().chain(seeded)
}
