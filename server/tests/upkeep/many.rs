//! Several worker processes and a server on one SQLite file, some of them killed again and again:
//! every job has one verdict, no job runs more often than it may, the store agrees with itself.

use std::io::Write;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::common::{Place, kill};

const JOBS: u64 = 20_000;
const WORKERS: usize = 4;
const KILLS: u64 = 8;

/// A worker process without a supervisor.
fn worker(place: &Place) -> Child {
    let mut command = place.command(&["worker", "run", "--concurrency", "16"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn jobs_that_several_processes_run_while_some_are_killed_have_one_verdict_each() {
    let place = Place::new("sqlite");
    let server = place.serve(&["--workers", "4"]);
    let mut workers: Vec<Child> = (0..WORKERS).map(|_| worker(&place)).collect();
    let mut file = std::fs::File::create(place.path("jobs.json")).unwrap();
    let one = r#"{"kind":"windlass.noop","visibility_timeout_ms":5000,"max_retries":20}"#;
    let jobs: Vec<&str> = (0..JOBS / 2).map(|_| one).collect();
    write!(file, r#"{{"jobs":[{}]}}"#, jobs.join(",")).unwrap();
    for _ in 0..2 {
        enqueue(server.address(), &place.path("jobs.json"));
    }
    for round in 0..KILLS {
        // Another look at the store between two kills is long enough to claim, and to be killed.
        place.run(&["status"]).good();
        let victim = &mut workers[usize::try_from(round).unwrap() % WORKERS];
        kill("-KILL", victim.id().into());
        victim.wait().unwrap();
        *victim = worker(&place);
    }
    let status = place.until(&["status", "--json"], |status| {
        let left = ["queued", "scheduled", "processing"];
        left.iter().map(|view| number(&status["counts"], view)).sum::<u64>() == 0
    });
    let counts = &status["counts"];
    assert_eq!((number(counts, "done"), number(counts, "failed")), (JOBS, 0), "{counts}");
    let claims: (i64, i64) = place
        .sqlite()
        .query_row("SELECT sum(epoch), max(attempts) FROM jobs", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    // A kill costs what the victim held at most: its slots. A process that the system gives no time
    // for a whole lease loses what it holds as well, which happens on a machine that is very busy.
    let (least, most) = (JOBS.cast_signed(), (JOBS + 2 * KILLS * 16).cast_signed());
    assert!((least..=most).contains(&claims.0), "{claims:?}, at most {most}");
    assert!(claims.1 <= 21, "{claims:?}");
    for worker in &mut workers {
        kill("-TERM", worker.id().into());
        assert!(worker.wait().unwrap().success());
    }
    place.ask(&server, &["doctor"]).good();
    place.run(&["doctor"]).good();
}

fn number(counts: &Value, view: &str) -> u64 {
    counts[view].as_u64().unwrap()
}

/// Enqueues a file of jobs in one request.
fn enqueue(address: &str, file: &std::path::Path) {
    use std::io::{BufRead, BufReader};
    let body = std::fs::read(file).unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /jobs/batch HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert!(line.contains(" 202 "), "{line}");
}
