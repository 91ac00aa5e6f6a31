//! `restore`: a checked copy in the place of a store that nothing has open; the old one is kept.

use std::path::PathBuf;

use crate::common::{FILES, Place, mode};

/// A store with one job, a copy of it, and a second job that the copy does not have.
fn with_copy(store: &str) -> Place {
    let place = Place::new(store);
    place.run(&["enqueue", "first"]).good();
    place.run(&["backup", "copy.db"]).good();
    place.run(&["enqueue", "second"]).good();
    place
}

fn jobs(place: &Place) -> usize {
    place.run(&["list", "--json"]).good().json()["jobs"].as_array().unwrap().len()
}

#[test]
fn a_restored_store_holds_what_the_copy_held_and_the_old_one_is_kept() {
    for store in FILES {
        let place = with_copy(store);
        let asked = place.run(&["restore", "copy.db"]);
        assert_eq!(asked.code, Some(2), "without --yes and without a terminal: {asked:?}");
        assert_eq!(jobs(&place), 2, "{store}");
        let restored = place.run(&["restore", "copy.db", "--yes", "--json"]).good().json();
        assert_eq!(jobs(&place), 1, "{store}");
        assert_eq!(mode(&place.path("data/jobs.db")), 0o600);
        let kept = PathBuf::from(restored["kept"].as_str().unwrap());
        assert_eq!(jobs(&Place::of(format!("{store}:{}", kept.display()))), 2, "{store}");
        place.run(&["enqueue", "third"]).good();
        place.run(&["doctor"]).good();
    }
}

/// A copy put over a store whose server was killed was read together with the old WAL.
#[test]
fn after_a_kill_the_wal_of_the_old_store_is_kept_with_it_and_not_mixed_with_the_copy() {
    for store in FILES {
        let place = with_copy(store);
        let server = place.serve(&[]);
        for _ in 0..20 {
            place.ask(&server, &["enqueue", "more", &format!("{:?}", "x".repeat(2_000))]).good();
        }
        drop(server);
        let restored = place.run(&["restore", "copy.db", "--yes", "--json"]).good().json();
        assert_eq!(jobs(&place), 1, "{store}");
        place.run(&["doctor"]).good();
        let kept = restored["kept"].as_str().unwrap();
        assert_eq!(jobs(&Place::of(format!("{store}:{kept}"))), 22, "{store}");
    }
}

#[test]
fn a_copy_put_by_hand_beside_the_wal_of_the_old_store_is_refused_with_what_to_do() {
    let place = with_copy("sqlite");
    let server = place.serve(&[]);
    place.ask(&server, &["enqueue", "more"]).good();
    drop(server);
    std::fs::copy(place.path("copy.db"), place.path("data/jobs.db")).unwrap();
    for args in [&["list"][..], &["enqueue", "x"], &["serve", "--listen", "127.0.0.1:0"]] {
        let refused = place.run(args);
        assert_eq!(refused.code, Some(1), "{args:?}: {refused:?}");
        assert!(refused.err.contains("jobs.db-wal"), "{args:?}: {refused:?}");
        assert!(refused.err.contains("windlass restore"), "{args:?}: {refused:?}");
    }
    place.run(&["restore", "copy.db", "--yes"]).good();
    assert_eq!(jobs(&place), 1);
}

/// Such a copy looks like any store: SQLite finds it damaged where its pages and the WAL's differ.
#[test]
fn a_copy_that_was_used_as_a_store_is_refused_too_and_stays_as_it_was() {
    let place = with_copy("sqlite");
    let copy = Place::of(format!("sqlite:{}", place.path("copy.db").display()));
    // Its pages lie elsewhere than those of the store.
    let other = rusqlite::Connection::open(place.path("copy.db")).unwrap();
    for n in 0..60 {
        let sql = format!("CREATE TABLE other{n} (x PRIMARY KEY) WITHOUT ROWID");
        other.execute_batch(&sql).unwrap();
    }
    drop(other);
    copy.run(&["enqueue", "of-the-copy"]).good();
    let server = place.serve(&[]);
    for _ in 0..20 {
        place.ask(&server, &["enqueue", "more", &format!("{:?}", "x".repeat(2_000))]).good();
    }
    drop(server);
    let bytes = std::fs::read(place.path("copy.db")).unwrap();
    std::fs::write(place.path("data/jobs.db"), &bytes).unwrap();
    for args in [&["list"][..], &["enqueue", "x"], &["serve", "--listen", "127.0.0.1:0"]] {
        let refused = place.run(args);
        assert_eq!(refused.code, Some(1), "{args:?}: {refused:?}");
        assert!(refused.err.contains("jobs.db-wal"), "{args:?}: {refused:?}");
        assert!(refused.err.contains("windlass restore"), "{args:?}: {refused:?}");
    }
    assert_eq!(std::fs::read(place.path("data/jobs.db")).unwrap(), bytes);
    for end in ["-wal", "-shm"] {
        let file = place.path(&format!("data/jobs.db{end}"));
        std::fs::rename(&file, place.path(&format!("away{end}"))).unwrap();
    }
    assert_eq!(jobs(&place), 2);
}

#[test]
fn a_store_in_use_is_not_replaced() {
    for store in FILES {
        let place = with_copy(store);
        let server = place.serve(&[]);
        let refused = place.run(&["restore", "copy.db", "--yes"]);
        assert_eq!(refused.code, Some(6), "{store}: {refused:?}");
        assert!(refused.err.contains("stop every server"), "{store}: {refused:?}");
        place.ask(&server, &["show", "2"]).good();
        let refused = place.ask(&server, &["restore", "copy.db", "--yes"]);
        assert_eq!(refused.code, Some(2), "{store}: {refused:?}");
        drop(server);
        place.run(&["restore", "copy.db", "--yes"]).good();
        assert_eq!(jobs(&place), 1, "{store}");
    }
}

#[test]
fn a_copy_that_is_damaged_newer_or_of_another_program_is_refused_and_nothing_changes() {
    for store in FILES {
        let place = with_copy(store);
        let whole = std::fs::read(place.path("copy.db")).unwrap();
        let mut damaged = whole.clone();
        let half = damaged.len() / 2;
        damaged[8192..half].fill(7);
        std::fs::write(place.path("damaged.db"), damaged).unwrap();
        std::fs::write(place.path("short.db"), &whole[..whole.len() / 2]).unwrap();
        std::fs::write(place.path("other.db"), "no database at all".repeat(1_000)).unwrap();
        std::fs::write(place.path("empty.db"), "").unwrap();
        if store == "sqlite" {
            std::fs::write(place.path("newer.db"), &whole).unwrap();
            let newer = rusqlite::Connection::open(place.path("newer.db")).unwrap();
            newer.execute_batch("PRAGMA user_version = 1000").unwrap();
        }
        for name in ["damaged.db", "short.db", "other.db", "empty.db", "newer.db"] {
            let refused = place.run(&["restore", name, "--yes"]);
            let missing = store == "redb" && name == "newer.db";
            let code = if missing { Some(3) } else { Some(1) };
            assert_eq!(refused.code, code, "{store} {name}: {refused:?}");
        }
        let refused = place.run(&["restore", "data/jobs.db", "--yes"]);
        assert!(refused.err.contains("the store itself"), "{store}: {refused:?}");
        assert_eq!(jobs(&place), 2, "{store}");
        let left = std::fs::read_dir(place.path("data")).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.contains("restore")).count(), 0, "{store}");
    }
}

#[test]
fn a_copy_is_restored_where_there_is_no_store() {
    for store in FILES {
        let place = with_copy(store);
        std::fs::remove_dir_all(place.path("data")).unwrap();
        std::fs::create_dir(place.path("data")).unwrap();
        let restored = place.run(&["restore", "copy.db", "--json"]).good().json();
        assert!(restored["kept"].is_null(), "{restored}");
        assert_eq!(jobs(&place), 1, "{store}");
    }
}

#[test]
fn a_copy_of_an_older_version_is_restored_as_it_is() {
    let place = with_copy("sqlite");
    let older = rusqlite::Connection::open(place.path("copy.db")).unwrap();
    older.execute_batch("PRAGMA user_version = 1").unwrap();
    drop(older);
    place.run(&["restore", "copy.db", "--yes"]).good();
    let version = "PRAGMA user_version";
    let version: i64 = place.sqlite().query_row(version, [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
}
