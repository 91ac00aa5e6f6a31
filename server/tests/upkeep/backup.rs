//! `backup`: a whole copy or none, readable by its owner only; no file is overwritten.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{FILES, Place, mode};

#[test]
fn a_copy_holds_what_the_store_held_in_both_modes() {
    for store in FILES {
        for served in [false, true] {
            let place = Place::new(store);
            for _ in 0..3 {
                place.run(&["enqueue", "x", r#"{"n":1}"#]).good();
            }
            let server = served.then(|| place.serve(&[]));
            let made =
                place.either(server.as_ref(), &["backup", "copy.db", "--json"]).good().json();
            let copy = place.path("copy.db");
            assert_eq!(made["bytes"], std::fs::metadata(&copy).unwrap().len());
            assert_eq!(mode(&copy), 0o600);
            let before = std::fs::read(&copy).unwrap();
            let refused = place.either(server.as_ref(), &["backup", "copy.db"]);
            assert_eq!(refused.code, Some(4), "{refused:?}");
            assert_eq!(std::fs::read(&copy).unwrap(), before, "nothing was overwritten");
            let copy = Place::of(format!("{store}:{}", copy.display()));
            let checked = copy.run(&["doctor", "--json"]).good().json();
            assert_eq!(checked["jobs"], 3);
            let left: Vec<_> = std::fs::read_dir(place.path("")).unwrap().collect();
            let names = left.iter().map(|entry| entry.as_ref().unwrap().file_name());
            let parts = names.filter(|name| name.to_string_lossy().contains("part"));
            assert_eq!(parts.count(), 0, "no half a copy is left");
            let data: Vec<_> = std::fs::read_dir(place.path("data")).unwrap().collect();
            let names = data.iter().map(|entry| entry.as_ref().unwrap().file_name());
            assert_eq!(names.filter(|name| name.to_string_lossy().contains("backup")).count(), 0);
        }
    }
}

/// Sets the flag when dropped, also by a failing assertion: the writer would run for ever
/// otherwise.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_copy_made_while_others_write_is_one_instant_of_the_store() {
    let place = Place::new("sqlite");
    let server = place.serve(&[]);
    let (over, address) = (AtomicBool::new(false), server.address());
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                place.ask_at(address, &["enqueue", "x"]).good();
            }
        });
        for (number, asked) in [None, Some(&server), None, Some(&server)].into_iter().enumerate() {
            let name = format!("copy{number}.db");
            place.either(asked, &["backup", &name]).good();
            let copy = Place::of(format!("sqlite:{}", place.path(&name).display()));
            let checked = copy.run(&["doctor", "--json"]).good().json();
            let listed = copy.run(&["list", "--limit", "1", "--json"]).good();
            let newest = listed.json()["jobs"][0]["id"].as_u64().unwrap_or_default();
            assert_eq!(checked["jobs"].as_u64(), Some(newest), "every job up to the newest");
        }
    });
}

#[test]
fn copies_that_a_kill_left_half_written_are_removed_by_the_next_start_and_the_next_backup() {
    for store in FILES {
        let place = Place::new(store);
        place.run(&["enqueue", "x"]).good();
        let (left, kept) = ("data/.backup-0123456789abcdef", "data/.backup-of-mine");
        let part = ".copy.db.part-0123456789abcdef";
        for name in [left, kept, part] {
            std::fs::write(place.path(name), "half").unwrap();
        }
        let server = place.serve(&[]);
        assert!(!place.path(left).exists(), "{store}");
        assert!(place.path(kept).exists(), "{store}");
        place.ask(&server, &["backup", "copy.db"]).good();
        assert!(!place.path(part).exists(), "{store}");
    }
}
