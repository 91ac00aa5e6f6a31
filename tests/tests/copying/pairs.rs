//! From every kind of store to every other: what arrives is what was there, indexes included.

use std::path::PathBuf;

use tempfile::TempDir;
use windlass_core::store::{CopyEnd, Seal, Store};
use windlass_core::{JobId, ProcessId};
use windlass_store_memory::MemoryStore;
use windlass_store_postgres::{Clock, PgOptions, PgStore, StoreUrl};
use windlass_store_redb::RedbStore;
use windlass_store_sqlite::SqliteStore;
use windlass_tests::copying::{LATER, begin, copied, drain, dump, ends, rich, steps};
use windlass_tests::differential::reads_agree;
use windlass_tests::on_disk::scratch;
use windlass_tests::postgres_server::PostgresServer;

/// A kind of store that can be opened again and again.
trait Kind {
    type Store: Store;

    /// A place for a new store; `None` if no such store can be made here.
    fn place() -> Option<Self>
    where
        Self: Sized;

    fn open(&self) -> Self::Store;

    /// What the store finds wrong with its indexes.
    fn verify(store: &Self::Store) -> Vec<String>;
}

struct Memory(MemoryStore);

impl Kind for Memory {
    type Store = MemoryStore;

    fn place() -> Option<Self> {
        Some(Self(MemoryStore::new()))
    }

    fn open(&self) -> MemoryStore {
        self.0.another()
    }

    fn verify(store: &MemoryStore) -> Vec<String> {
        store.verify()
    }
}

struct InFile(TempDir);

impl InFile {
    fn path(&self) -> PathBuf {
        self.0.path().join("jobs.db")
    }
}

struct Sqlite(InFile);

impl Kind for Sqlite {
    type Store = SqliteStore;

    fn place() -> Option<Self> {
        Some(Self(InFile(scratch())))
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(self.0.path()).expect("it opens")
    }

    fn verify(store: &SqliteStore) -> Vec<String> {
        let found = store.verify().expect("it can be verified");
        found.into_iter().map(|found| found.to_string()).collect()
    }
}

struct Redb(InFile);

impl Kind for Redb {
    type Store = RedbStore;

    fn place() -> Option<Self> {
        Some(Self(InFile(scratch())))
    }

    fn open(&self) -> RedbStore {
        RedbStore::open(self.0.path()).expect("it opens")
    }

    fn verify(store: &RedbStore) -> Vec<String> {
        let found = store.verify().expect("it can be verified");
        found.into_iter().map(|found| found.to_string()).collect()
    }
}

struct Postgres(String);

impl Kind for Postgres {
    type Store = PgStore;

    fn place() -> Option<Self> {
        let server = PostgresServer::shared()?;
        Some(Self(server.url(&server.new_schema())))
    }

    fn open(&self) -> PgStore {
        let url = StoreUrl::parse(&self.0).expect("it is a URL");
        let options = PgOptions { clock: Clock::Caller, id_block: 0, ..PgOptions::default() };
        PgStore::open(url, options).expect("it opens")
    }

    fn verify(store: &PgStore) -> Vec<String> {
        let found = store.verify().expect("it can be verified");
        found.into_iter().map(|found| found.to_string()).collect()
    }
}

/// Copies a rich store, and on to one in memory: all three hold the same, and the copies find the
/// same jobs.
fn a_copy_holds_what_its_source_held<A: Kind, B: Kind>() {
    let (Some(from), Some(to)) = (A::place(), B::place()) else { return };
    let before = copied(&rich(from.open()));
    let mut copy = begin(ends(from.open(), to.open()), 1).expect("it begins");
    let done = steps(&mut copy, usize::MAX).expect("it is copied").expect("it ends");
    drop(copy);
    let target = to.open();
    assert_eq!(copied(&target), before);
    assert_eq!(copied(&from.open()), before, "the source is as it was");
    assert_eq!(B::verify(&target), Vec::<String>::new());
    reads_agree(&target).unwrap_or_else(|why| panic!("{why}"));
    let jobs = dump(&target).jobs.len() as u64;
    assert!(done.rows.contains(&("jobs", jobs)), "{done:?}");

    let mut memory = MemoryStore::new();
    let mut copy = begin(ends(target, memory.another()), 2).expect("it begins");
    let again = steps(&mut copy, usize::MAX).expect("it is copied").expect("it ends");
    assert_eq!(again, done, "the checksum does not depend on the store");
    drop(copy);
    let target = CopyEnd { store: to.open(), name: "the target".into() };
    let undone = target.undo(ProcessId(3), LATER).expect("it is undone");
    assert!(matches!(undone, Some(Seal::Moved { .. })), "{undone:?}");
    let mut target = to.open();
    assert_eq!(drain(&mut target), drain(&mut memory), "the copies find other jobs");
    assert_eq!(copied(&target), copied(&memory));
}

/// Stops after each commit, and goes on with new handles. Pages are small, so that sections have
/// many.
fn a_copy_goes_on_where_it_was_stopped<A: Kind, B: Kind>() {
    let (Some(from), Some(to)) = (A::place(), B::place()) else { return };
    let before = copied(&rich(from.open()));
    let mut runs = 0;
    let done = loop {
        runs += 1;
        let marked = Seal::of(&dump(&to.open()).settings);
        let whole =
            matches!(&marked, Some(Seal::Filling { place, .. }) if place.section() == "whole");
        // The end of a section is found by a step that writes nothing.
        let some = if whole { usize::MAX } else { 2 };
        let copy = begin(ends(from.open(), to.open()), runs).expect("it goes on");
        let mut copy = copy.pages(7);
        if let Some(done) = steps(&mut copy, some).expect("it is copied") {
            break done;
        }
    };
    assert!(runs > 10, "it was stopped {runs} times only");
    assert_eq!(copied(&to.open()), before);
    assert_eq!(B::verify(&to.open()), Vec::<String>::new());
    assert!(!done.checksum.is_empty());
}

macro_rules! pairs {
    ($($name:ident: $from:ty => $to:ty;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn a_copy_holds_what_its_source_held() {
                super::a_copy_holds_what_its_source_held::<$from, $to>();
            }

            #[test]
            fn a_copy_goes_on_where_it_was_stopped() {
                super::a_copy_goes_on_where_it_was_stopped::<$from, $to>();
            }
        })*
    };
}

pairs! {
    memory_to_memory: Memory => Memory;
    memory_to_sqlite: Memory => Sqlite;
    memory_to_redb: Memory => Redb;
    memory_to_postgres: Memory => Postgres;
    sqlite_to_memory: Sqlite => Memory;
    sqlite_to_sqlite: Sqlite => Sqlite;
    sqlite_to_redb: Sqlite => Redb;
    sqlite_to_postgres: Sqlite => Postgres;
    redb_to_memory: Redb => Memory;
    redb_to_sqlite: Redb => Sqlite;
    redb_to_redb: Redb => Redb;
    redb_to_postgres: Redb => Postgres;
    postgres_to_memory: Postgres => Memory;
    postgres_to_sqlite: Postgres => Sqlite;
    postgres_to_redb: Postgres => Redb;
    postgres_to_postgres: Postgres => Postgres;
}

/// The rows of a source may all be gone while clients still know their ids.
fn ids_go_on_behind_the_last_one_of_the_source<B: Kind>() {
    let Some(to) = B::place() else { return };
    let source = rich(MemoryStore::new());
    let next = dump(&source).next_id;
    let mut copy = begin(ends(source, to.open()), 1).expect("it begins");
    steps(&mut copy, usize::MAX).expect("it is copied");
    drop(copy);
    assert_eq!(dump(&to.open()).next_id, next);
    let mut store = to.open();
    let mut batch = windlass_core::store::Batch::new(
        windlass_core::BatchId { process: ProcessId(50), seq: 1 },
        windlass_core::Policy::default(),
    );
    let kind = windlass_core::Kind::new("k").expect("a kind");
    let payload = windlass_core::Payload::new("1").expect("a payload");
    batch.enqueues.push(windlass_core::NewJob::new(kind, payload));
    let outcomes = store.commit(LATER, &batch).expect("it is taken");
    let id: JobId = outcomes.enqueues[0].as_ref().expect("it is stored").id;
    assert_eq!(id, next);
}

#[test]
fn ids_go_on_behind_the_last_one_of_the_source_in_every_store() {
    ids_go_on_behind_the_last_one_of_the_source::<Memory>();
    ids_go_on_behind_the_last_one_of_the_source::<Sqlite>();
    ids_go_on_behind_the_last_one_of_the_source::<Redb>();
    ids_go_on_behind_the_last_one_of_the_source::<Postgres>();
}
