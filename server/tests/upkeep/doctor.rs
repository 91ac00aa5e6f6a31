//! `doctor`: contradictions are found, and repaired in derived data.

use crate::common::{Place, peak_kib, stores};

#[test]
fn a_store_that_agrees_with_itself_is_well_in_both_modes() {
    for store in stores() {
        let place = Place::new(store);
        place.run(&["enqueue", "x", "--key", "k"]).good();
        let checked = place.run(&["doctor", "--json"]).good().json();
        assert_eq!((&checked["ok"], &checked["jobs"]), (&true.into(), &1.into()));
        assert_eq!(checked["pages_checked"], store != "postgres");
        let server = place.serve(&[]);
        let checked = place.ask(&server, &["doctor", "--json"]).good().json();
        assert_eq!((&checked["ok"], &checked["jobs"]), (&true.into(), &1.into()));
        let refused = place.ask(&server, &["doctor", "--repair"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        if store == "redb" {
            let refused = place.run(&["doctor"]);
            assert_eq!(refused.code, Some(6), "{refused:?}");
            assert!(refused.err.contains("--server"), "{refused:?}");
        }
    }
}

#[test]
fn counters_that_lie_and_texts_of_no_job_are_found_and_repaired_beside_a_running_server() {
    let place = Place::new("sqlite");
    let id = place.run(&["enqueue", "x", "--json"]).good().json()["job"]["id"].clone();
    let server = place.serve(&[]);
    place
        .sqlite()
        .execute_batch(
            "UPDATE counts SET queued = queued + 5;
         INSERT INTO results (job, text) SELECT 4711, text FROM bodies;",
        )
        .unwrap();
    for checked in [place.run(&["doctor"]), place.ask(&server, &["doctor"])] {
        assert_eq!(checked.code, Some(1), "{checked:?}");
        assert!(checked.out.contains("counters") && checked.out.contains("4711"), "{checked:?}");
    }
    let repaired = place.run(&["doctor", "--repair"]).good();
    assert!(
        repaired.err.contains("repaired:") && repaired.out.contains("no problems found"),
        "{repaired:?}"
    );
    place.ask(&server, &["doctor"]).good();
    let status = place.ask(&server, &["status", "--json"]).good().json();
    assert_eq!(status["counts"]["queued"], 1);
    let job = place.ask(&server, &["show", &id.to_string()]).good();
    assert!(job.out.contains("queued"), "{job:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_check_looks_at_one_job_after_the_other_and_holds_none_of_them() {
    // 32 MiB are the page cache of SQLite.
    for (store, most_mib) in [("sqlite", 68), ("redb", 68)] {
        let place = Place::new(store);
        place.fill(50_000);
        let mut doctor = place.command(&["doctor", "--json"]).spawn().unwrap();
        let mut peak = 0;
        while doctor.try_wait().unwrap().is_none() {
            peak = peak.max(peak_kib(doctor.id().into()));
        }
        let said = doctor.wait_with_output().unwrap();
        let checked: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!((&checked["ok"], &checked["jobs"]), (&true.into(), &50_000.into()), "{store}");
        let range = 1..most_mib * 1024;
        assert!(range.contains(&peak), "{store}: {peak} KiB for 50 MB of jobs");
    }
}
