//! Commands that behave: what they are given, what is kept of them, who may enqueue them.

use serde_json::{Value, json};
use windlass_runtime_tokio::{NewJob, Runtime};
use windlass_store_sqlite::SqliteStore;

use super::{attempts, enqueue, finished, run, script, shell_server, shell_server_on, wait_until};
use crate::common::{Place, Server, stores};

#[test]
fn a_command_that_succeeds_is_done_with_its_output() {
    for store in stores() {
        let (_place, server) = Server::with(store, &["--allow-command", "echo"]);
        let job =
            run(&server, &json!({"kind": "command", "payload": {"argv": ["echo", "a", "b"]}}));
        assert_eq!(job["state"], "done", "{job}");
        let result = json!({"exit_code": 0, "stdout": "a b\n", "stderr": "", "truncated": false});
        assert_eq!(job["result"], result);
    }
}

#[test]
fn arguments_reach_the_program_byte_for_byte() {
    let (_place, server) = shell_server(&[]);
    let given =
        ["; rm -rf x", "$(x)", "`x`", "a\nb\r\n", "-e", "--", "", "*", "'\"\\", "ä\u{1F600}"];
    let show = r#"for a; do printf %s "$a" | od -An -v -tx1 | tr -d ' \n'; echo; done"#;
    let mut argv = vec!["sh", "-c", show, "sh"];
    argv.extend(given);
    let job = run(&server, &json!({"kind": "command", "payload": {"argv": argv}}));
    let seen: Vec<&str> = job["result"]["stdout"].as_str().unwrap().lines().collect();
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
    assert_eq!(seen, given.map(|text| hex(text).concat()));
}

#[test]
fn a_command_sees_the_environment_it_is_allowed_and_nothing_else() {
    let place = Place::new("sqlite");
    let args = ["--allow-command", "/usr/bin/env", "--listen", "127.0.0.1:0"];
    let mut command = place.command(&[&args[..], &["--command-env", "PATH,CANARY_SEEN"]].concat());
    command.env("CANARY_SEEN", "yes").env("CANARY_HIDDEN", "secret");
    command.env("WINDLASS_WEBHOOK_SECRET", "whsec_c2VjcmV0LWNhbmFyeS1zZWNyZXQ=");
    let server = Server::of(command.spawn().unwrap());
    let job = run(&server, &json!({"kind": "command", "payload": {"argv": ["/usr/bin/env"]}}));
    let seen = job["result"]["stdout"].as_str().unwrap();
    let mut names: Vec<&str> = seen.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    let expected = ["CANARY_SEEN", "PATH", "WINDLASS_ATTEMPT", "WINDLASS_EPOCH", "WINDLASS_JOB_ID"];
    assert_eq!(names, expected, "{seen}");
    for line in ["CANARY_SEEN=yes", "WINDLASS_JOB_ID=1", "WINDLASS_EPOCH=1", "WINDLASS_ATTEMPT=1"] {
        assert!(seen.lines().any(|seen| seen == line), "{line}: {seen}");
    }
}

#[test]
fn a_failed_attempt_keeps_its_exit_code_and_what_it_wrote() {
    let (place, server) = shell_server(&[]);
    let mut job = script(&place, "echo out; echo err >&2; printf '\\033[2J\\377' >&2; exit 3");
    job["max_retries"] = json!(1);
    job["retry"] = json!({"strategy": "fixed", "initial_ms": 1, "jitter": 0});
    let job = run(&server, &job);
    assert_eq!((&job["state"], &job["attempts"]), (&json!("failed"), &json!(2)), "{job}");
    assert!(job["last_error"].as_str().unwrap().contains("code 3"), "{job}");
    let attempts = attempts(&server, job["id"].as_u64().unwrap());
    assert_eq!(attempts.as_array().unwrap().len(), 2);
    for attempt in attempts.as_array().unwrap() {
        assert_eq!(attempt["exit_code"], 3);
        assert_eq!(attempt["stdout"], "out\n");
        assert_eq!(attempt["stderr"], "err\n\u{1b}[2J\u{FFFD}");
        assert_eq!(attempt["truncated"], false);
    }
    server.signal("-TERM");
    let (_, log) = server.end();
    assert!(!log.contains('\u{1b}') && !log.contains("out\n"), "{log}");
}

#[test]
fn a_command_that_a_signal_ends_or_that_is_not_there_says_so() {
    let (place, server) = shell_server(&["--allow-command", "no-such-program"]);
    let job = run(&server, &script(&place, "kill -SEGV $$"));
    assert!(job["last_error"].as_str().unwrap().contains("signal 11 (SIGSEGV)"), "{job}");
    assert_eq!(attempts(&server, job["id"].as_u64().unwrap())[0]["exit_code"], 139);
    // It may come with the next deployment: it is tried again.
    let mut missing = json!({"kind": "command", "payload": {"argv": ["no-such-program"]}});
    missing["retry"] = json!({"strategy": "fixed", "initial_ms": 1, "jitter": 0});
    let job = run(&server, &missing);
    assert_eq!((&job["state"], &job["attempts"]), (&json!("failed"), &json!(4)), "{job}");
    assert!(job["last_error"].as_str().unwrap().contains("cannot be started"), "{job}");
    assert_eq!(attempts(&server, job["id"].as_u64().unwrap())[0]["exit_code"], 127);
}

#[test]
fn endless_output_is_cut_and_marked_and_takes_no_memory() {
    let (place, server) = shell_server(&[]);
    let peak = || server.peak_kib();
    run(&server, &script(&place, "echo warm"));
    let before = peak();
    let flood = "head -c 400000000 /dev/zero | tr '\\0' x; printf end >&2";
    let job = run(&server, &script(&place, flood));
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(job["result"]["truncated"], true);
    assert_eq!(job["result"]["stdout"], "x".repeat(16 * 1024));
    assert_eq!(job["result"]["stderr"], "end");
    assert!(peak() - before < 16 * 1024, "{before} KiB became {} KiB", peak());
}

#[test]
fn without_permission_no_command_is_taken_and_nothing_is_started() {
    for store in stores() {
        let place = Place::new(store);
        let touched = place.path("touched");
        let argv = json!(["touch", touched.to_str().unwrap()]);
        let line = json!(format!("touch {}", touched.display()));
        let payloads = [
            json!({"argv": argv}),
            json!({"command": line}),
            json!({"argv": ["echo"], "cwd": "."}),
            json!({"argv": ["sh", "-c", line]}),
            json!(null),
        ];
        for args in [&[][..], &["--allow-command", "echo", "--allow-command", "true"]] {
            let server = place.start(args);
            let mut jobs = Vec::new();
            for payload in &payloads {
                let job = json!({"kind": "command", "payload": payload});
                let reply = server.post("/jobs", &job.to_string());
                assert_eq!(reply.refused(), (403, "kind-not-allowed".into()), "{store} {job}");
                jobs.push(job);
            }
            let reply = server.post("/jobs/batch", &json!({ "jobs": jobs }).to_string()).json();
            for result in reply["results"].as_array().unwrap() {
                assert_eq!(result["error"]["status"], 403, "{store}: {reply}");
            }
            assert_eq!(server.get("/jobs").json()["jobs"], json!([]));
            assert!(!touched.exists(), "{store}");
            server.kill();
        }
    }
}

#[test]
fn an_allowed_program_is_taken_in_batches_too_and_no_other() {
    let (_place, server) = Server::with("sqlite", &["--allow-command", "true"]);
    let job = |program: &str| json!({"kind": "command", "payload": {"argv": [program]}});
    let batch = json!({"jobs": [job("true"), job("false"), job("true")]});
    let reply = server.post("/jobs/batch", &batch.to_string()).json();
    assert_eq!(reply["results"][1]["error"]["status"], 403, "{reply}");
    for at in [0, 2] {
        let id = reply["results"][at]["id"].as_u64().unwrap();
        assert_eq!(finished(&server, id)["state"], "done");
    }
}

/// Enqueues as the command line does: in the store itself, while the server runs.
fn enqueue_in_store(place: &Place, payload: &Value) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(place.path("data/jobs.db")).unwrap();
        let queue = Runtime::builder(store).start().unwrap();
        let job = NewJob::of("command", payload).unwrap().max_retries(0);
        let receipt = queue.enqueue(job).await.unwrap();
        queue.shutdown(crate::common::PATIENCE).await;
        receipt.id.get()
    })
}

#[test]
fn a_job_from_the_store_itself_may_be_a_shell_line_in_a_directory_of_its_own() {
    let (place, server) = Server::new("sqlite");
    std::fs::create_dir(place.path("inside")).unwrap();
    let inside = place.path("inside");
    let payload = json!({"command": "pwd && echo $((1+1))", "cwd": inside.to_str().unwrap()});
    let job = finished(&server, enqueue_in_store(&place, &payload));
    let expected = format!("{}\n2\n", inside.canonicalize().unwrap().display());
    assert_eq!(job["result"]["stdout"], expected, "{job}");
    let nowhere = json!({"argv": ["true"], "cwd": place.path("nowhere").to_str().unwrap()});
    let job = finished(&server, enqueue_in_store(&place, &nowhere));
    assert!(job["last_error"].as_str().unwrap().contains("`cwd` cannot be entered"), "{job}");
    let unknown = json!({"argv": ["true"], "user": "nobody"});
    let job = finished(&server, enqueue_in_store(&place, &unknown));
    assert!(job["last_error"].as_str().unwrap().contains("`user`"), "{job}");
    assert_eq!((&job["state"], &job["attempts"]), (&json!("failed"), &json!(1)), "{job}");
}

#[test]
fn limits_hold_for_commands_and_not_for_the_server() {
    let (place, server) = shell_server(&[
        "--command-cpu-seconds",
        "1",
        "--command-memory",
        "100000000",
        "--command-open-files",
        "20",
    ]);
    let job = run(&server, &script(&place, "while :; do :; done"));
    assert!(job["last_error"].as_str().unwrap().contains("SIGXCPU"), "{job}");
    let job = run(&server, &script(&place, "ulimit -n; ulimit -v; ulimit -Hv"));
    assert_eq!(job["result"]["stdout"], "20\n97656\n97656\n", "{job}");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert!(!files.contains(" 20 "), "{files}");
}

#[test]
fn a_thousand_failures_leave_the_pool_as_it_was() {
    let args = ["--workers", "2", "--allow-command", "false", "--allow-command", "true"];
    let (_place, server) = Server::with("sqlite", &args);
    let bad = json!({"kind": "command", "max_retries": 0, "payload": {"argv": ["false"]}});
    let batch = json!({"jobs": vec![bad; 1_000]});
    assert_eq!(server.post("/jobs/batch", &batch.to_string()).status, 202);
    let count = |state: &str| {
        server.get("/queues/default").json()["counts"][state].as_u64().unwrap_or_default()
    };
    let mut last = 0;
    // However slow the machine: as long as it goes on, it is waited for.
    while count("failed") < 1_000 {
        wait_until(&server, "another failure", || count("failed") > last);
        last = count("failed");
    }
    let free = "windlass_worker_slots{state=\"free\"} 2";
    wait_until(&server, free, || server.get("/metrics").text().contains(free));
    let good = json!({"kind": "command", "payload": {"argv": ["true"]}});
    let ids: Vec<u64> = (0..4).map(|_| enqueue(&server, &good)).collect();
    for id in ids {
        assert_eq!(finished(&server, id)["state"], "done");
    }
}

#[test]
fn remote_workers_are_not_handed_commands_unless_they_ask_for_them() {
    let (_place, server) = Server::with("sqlite", &["--workers", "0", "--allow-command", "true"]);
    let id = server.enqueue(r#"{"kind":"command","payload":{"argv":["true"]}}"#);
    assert_eq!(server.claim("w", 1), Vec::<Value>::new());
    let explained = server.get(&format!("/jobs/{id}/explain")).text();
    assert!(explained.contains("no_worker"), "{explained}");
    let reply = server.post("/jobs/poll", r#"{"worker":"w","kinds":["command"]}"#).json();
    assert_eq!(reply["jobs"][0]["id"], id);
}

#[test]
fn two_servers_on_one_file_run_each_command_once() {
    let place = Place::new("sqlite");
    let (one, two) = (shell_server_on(&place, &[]), shell_server_on(&place, &[]));
    let job = script(&place, "echo $WINDLASS_JOB_ID >> \"$1/ran\"");
    let ids: Vec<u64> =
        (0..20).map(|n| enqueue(if n % 2 == 0 { &one } else { &two }, &job)).collect();
    for id in &ids {
        assert_eq!(finished(&one, *id)["state"], "done");
    }
    let mut ran: Vec<u64> = std::fs::read_to_string(place.path("ran"))
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    ran.sort_unstable();
    assert_eq!(ran, ids);
}

#[test]
fn a_wait_for_a_running_command_ends_when_the_server_drains_and_not_with_the_command() {
    let (place, server) = shell_server(&["--drain-timeout", "10m"]);
    let until_shown = "until [ -e \"$1/go\" ]; do sleep 0.05; done";
    let id = enqueue(&server, &script(&place, until_shown));
    server.until(&format!("/jobs/{id}"), |job| job["state"] == "processing");
    let mut waiting = server.connect();
    waiting.ask("GET", &format!("/jobs/{id}?wait_ms=30000"), &[], None);
    server.signal("-TERM");
    assert_eq!(waiting.reply().unwrap().refused(), (503, "shutting-down".into()));
    std::fs::write(place.path("go"), "").unwrap();
    let (status, said) = server.end();
    assert!(status.success(), "{said}");
    assert_eq!(place.start(&[]).job(id)["state"], "done");
}
