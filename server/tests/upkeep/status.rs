//! `status`.

use crate::common::{Place, stores};

#[test]
fn status_counts_what_is_there_in_both_modes() {
    for store in stores() {
        for served in [false, true] {
            let place = Place::new(store);
            place.run(&["enqueue", "x"]).good();
            place.run(&["enqueue", "x", "--delay", "1h"]).good();
            let server = served.then(|| place.serve(&[]));
            let status = place.either(server.as_ref(), &["status", "--json"]).good().json();
            assert_eq!(status["counts"]["queued"], 1);
            assert_eq!(status["counts"]["scheduled"], 1);
            assert_eq!(status["health"], "good");
            assert!(status["oldest_ready_age_ms"].is_u64());
            assert!(status["next_due"].is_string());
            assert!(status["store"]["bytes"].as_u64().unwrap() > 0);
            assert!(status["rates"]["enqueued_per_s"].as_f64() > Some(0.0), "{status}");
            let screen = place.either(server.as_ref(), &["status"]).good().out;
            assert!(screen.contains("1 queued, 1 scheduled"), "{screen}");
        }
    }
}

#[test]
fn looking_at_a_store_that_is_not_there_makes_none() {
    let place = Place::new("sqlite");
    let refused = place.run(&["status"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(!place.path("data").exists());
}
