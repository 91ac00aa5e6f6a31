//! Figures in both formats, as a strict parser reads them; and what counts as a failure.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Server, attempts};

/// Starts a server with a failed, a snoozed and a done job.
fn used(args: &[&str]) -> (crate::common::Place, Server) {
    let (place, server) = Server::with("sqlite", args);
    for (kind, verdict) in [
        ("a", r#""verdict":"fail","error":"no""#),
        ("b", r#""verdict":"snooze","delay_ms":60000"#),
        ("c", r#""verdict":"release""#),
        ("c", r#""verdict":"complete""#),
    ] {
        if kind != "c" || verdict.contains("release") {
            server.enqueue(&format!(r#"{{"kind":"{kind}","retry":{{"initial_ms":3600000}}}}"#));
        }
        let token = server.claim("w", 1)[0]["lease"]["token"].clone();
        let body = format!(r#"{{"reports":[{{"token":{token},{verdict}}}]}}"#);
        let reply = server.post("/jobs/reports", &body);
        assert!(reply.text().contains("state"), "{}", reply.text());
    }
    (place, server)
}

/// The figures, once those of the last commit are there.
fn figures(server: &Server, accept: &str) -> (String, String) {
    let done = r#"windlass_jobs_finished_total{queue="default",outcome="done"} 1"#;
    for () in attempts() {
        let reply = server.connect().send("GET", "/metrics", &[("accept", accept)], None);
        if reply.text().contains(done) {
            return (reply.header("content-type").unwrap().into(), reply.text());
        }
    }
    panic!("the counters never showed what was done")
}

/// The family of a sample, as its description names it.
fn family<'a>(types: &BTreeMap<&'a str, &'a str>, sample: &'a str, open: bool) -> &'a str {
    let name = sample.split(['{', ' ']).next().unwrap();
    let stems = ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
    let histogram = stems.into_iter().find(|stem| types.get(stem) == Some(&"histogram"));
    let counter = name.strip_suffix("_total").filter(|_| open);
    histogram.or(counter).unwrap_or(name)
}

fn check(text: &str, open: bool) {
    let (mut helps, mut types) = (BTreeSet::new(), BTreeMap::new());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ').skip(1);
        let mut word = || words.next().unwrap();
        if line.starts_with("# HELP ") {
            let (_, name) = (word(), word());
            assert!(!word().is_empty(), "{line}");
            assert!(helps.insert(name), "{name} is described twice");
        } else if line.starts_with("# TYPE ") {
            let (_, name) = (word(), word());
            types.insert(name, word());
        }
    }
    let (mut infinite, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let family = family(&types, line, open);
        assert!(helps.contains(family), "{line} has no HELP");
        let kind = types.get(family).unwrap_or_else(|| panic!("{line} has no TYPE"));
        if *kind != "histogram" {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        if let Some(bound) = name.split("le=\"").nth(1) {
            let bound = bound.split('"').next().unwrap();
            if bound == "+Inf" {
                let of = name.replace("_bucket", "").replace("le=\"+Inf\",", "");
                infinite.insert(of.replace("{le=\"+Inf\"}", ""), value);
            } else {
                assert!(bound.parse::<f64>().unwrap() <= 65_536.0, "{line}");
            }
        } else if name.split('{').next().unwrap().ends_with("_count") {
            counts.insert(name.replace("_count", ""), value);
        }
    }
    assert_eq!(infinite, counts, "every histogram ends with +Inf, which holds everything");
    assert!(counts.len() >= 5, "{counts:?}");
}

#[test]
fn figures_pass_a_strict_parser_in_the_format_that_was_asked_for() {
    let (_place, server) = used(&[]);
    for accept in ["*/*", "text/plain", "text/plain;q=0.9,application/openmetrics-text;q=0.1"] {
        let (kind, text) = figures(&server, accept);
        assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8", "{accept}");
        assert!(!text.contains("# EOF"));
        check(&text, false);
    }
    let (kind, text) =
        figures(&server, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(text.ends_with("# EOF\n"));
    check(&text, true);
}

#[test]
fn only_an_attempt_that_failed_counts_as_retried() {
    let (_place, server) = used(&["--metrics-kinds"]);
    let (_, text) = figures(&server, "text/plain");
    for line in [
        r#"windlass_jobs_finished_total{queue="default",outcome="retried"} 1"#,
        r#"windlass_jobs_finished_total{queue="default",outcome="given_back"} 2"#,
        r#"windlass_job_run_seconds_count{queue="default"} 2"#,
        r#"windlass_job_wait_seconds_count{queue="default"} 4"#,
        r#"windlass_job_run_by_kind_seconds_count{queue="default",kind="a"} 1"#,
        r#"windlass_job_wait_by_kind_seconds_count{queue="default",kind="c"} 2"#,
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
}
