//! Figures are those of the store: two servers, a worker process and commands on one file count
//! together, and every one of them reports the same.

use crate::common::{Place, QUESTIONS, Running};

/// The lines of `/metrics` about jobs.
fn job_figures(server: &Running) -> Vec<String> {
    let of_jobs = ["windlass_jobs_", "windlass_job_", "windlass_lease_expired"];
    let text = server.request("GET", "/metrics", "");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let lines = text.lines().filter(|line| of_jobs.iter().any(|name| line.starts_with(name)));
    lines.map(ToOwned::to_owned).collect()
}

/// Repeats the request until the server exposes all of these lines.
#[track_caller]
fn until(server: &Running, wanted: &[&str]) -> Vec<String> {
    for _ in 0..QUESTIONS {
        let lines = job_figures(server);
        if wanted.iter().all(|wanted| lines.iter().any(|line| line == wanted)) {
            return lines;
        }
    }
    panic!("never all of {wanted:?}: {:#?}", job_figures(server))
}

const ALL: [&str; 7] = [
    r#"windlass_jobs_enqueued_total{queue="default"} 12"#,
    r#"windlass_jobs_deduplicated_total{queue="default"} 1"#,
    r#"windlass_jobs_started_total{queue="default"} 11"#,
    r#"windlass_jobs_finished_total{queue="default",outcome="done"} 11"#,
    r#"windlass_jobs_finished_total{queue="default",outcome="cancelled"} 1"#,
    r#"windlass_job_wait_seconds_count{queue="default"} 11"#,
    r#"windlass_job_run_seconds_bucket{le="+Inf",queue="default"} 11"#,
];

#[test]
fn two_servers_and_a_worker_process_on_one_file_report_the_same_figures() {
    let place = Place::new("sqlite");
    let (first, second) = (place.serve(&["--workers", "0"]), place.serve(&["--workers", "0"]));
    let noop = ["enqueue", "windlass.noop", "null"];
    (0..5).for_each(|_| drop(place.ask(&first, &noop).good()));
    (0..4).for_each(|_| drop(place.ask(&second, &noop).good()));
    let keyed = [&noop[..], &["--key", "k"]].concat();
    place.ask(&first, &keyed).good();
    place.ask(&second, &keyed).good();
    place.run(&noop).good();
    let later = ["enqueue", "windlass.noop", "null", "--delay", "1h", "--json"];
    let id = place.ask(&first, &later).good().json()["job"]["id"].to_string();
    place.ask(&second, &["cancel", &id]).good();
    let worker = place.command(&["worker", "run", "--concurrency", "2"]).spawn().unwrap();
    let worker = Running::of(worker);
    assert!(worker.wait_for_log("attempt ended").contains("done"), "it logs what it ran");

    let counters = until(&first, &ALL);
    assert_eq!(until(&second, &ALL), counters, "both show the same");
    for server in [Some(&first), Some(&second), None] {
        let status = place.either(server, &["status", "--json"]).good().json();
        assert!(status["rates"]["done_per_s"].as_f64() > Some(0.0), "{status}");
        let queues = place.either(server, &["queue", "list", "--json"]).good().json();
        let rates = &queues["queues"][0]["rates"];
        assert!(rates["done_per_s"].as_f64() > Some(0.0), "{queues}");
    }

    // What is written survives the processes that wrote it.
    assert!(worker.stop().0.success() && first.stop().0.success() && second.stop().0.success());
    let third = place.serve(&["--workers", "0"]);
    assert_eq!(until(&third, &ALL), counters, "counters go on over a restart");
}

#[test]
fn a_server_with_figures_by_kind_still_reports_what_worker_processes_run() {
    let place = Place::new("sqlite");
    let server = place.serve(&["--workers", "0", "--metrics-kinds"]);
    (0..3).for_each(|_| drop(place.ask(&server, &["enqueue", "windlass.noop", "null"]).good()));
    let worker = Running::of(place.command(&["worker", "run"]).spawn().unwrap());
    let lines = until(
        &server,
        &[
            r#"windlass_job_wait_seconds_count{queue="default"} 3"#,
            r#"windlass_job_run_seconds_count{queue="default"} 3"#,
        ],
    );
    let by_kind = lines.iter().filter(|line| line.contains("_by_kind_"));
    assert_eq!(by_kind.count(), 0, "another process ran them: {lines:#?}");
    assert!(worker.stop().0.success());
}
