//! Checks and backups whose clients have disconnected: one at a time, and no copy is left.
#![cfg(target_os = "linux")]

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::TcpStream;

use crate::common::{FILES, Place, QUESTIONS, Running, peak_kib};

/// Number of clients that send the same request and disconnect.
const CLIENTS: usize = 20;

fn get(server: &Running, path: &str) -> String {
    server.request("GET", path, "")
}

/// Sends the same request from several clients, which disconnect once another client was refused.
/// Returns that refusal.
fn abandoned(server: &Running, path: &str) -> String {
    // Nothing may run any more when the other client asks: then they ask again.
    for _ in 0..10 {
        let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| server.send("GET", path, "")).collect();
        let answer = get(server, path);
        drop(clients);
        if !answer.starts_with("HTTP/1.1 200 ") {
            return answer;
        }
    }
    panic!("{path} is never refused while {CLIENTS} others ask for it")
}

/// Waits until no check and no backup runs.
fn until_over(server: &Running) {
    let over = || get(server, "/doctor").starts_with("HTTP/1.1 200 ");
    assert!((0..100 * QUESTIONS).any(|_| over()), "what was abandoned never ended");
}

/// Copies beside the store that still have a name.
fn copies(place: &Place) -> Vec<OsString> {
    let entries = std::fs::read_dir(place.path("data")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".backup-")).collect()
}

#[test]
fn of_abandoned_checks_and_backups_one_runs_at_a_time_in_the_memory_of_one() {
    for store in FILES {
        let place = Place::new(store);
        place.fill(20_000);
        let server = place.serve(&["--workers", "0"]);
        assert!(get(&server, "/doctor").starts_with("HTTP/1.1 200 "));
        assert!(get(&server, "/backup").starts_with("HTTP/1.1 200 "));
        let one = peak_kib(server.pid());
        for path in ["/backup", "/doctor"] {
            let refused = abandoned(&server, path);
            assert!(refused.starts_with("HTTP/1.1 503 "), "{store}: {refused}");
            assert!(refused.contains("overloaded"), "{store}: {refused}");
            assert!(refused.contains("a check or a backup runs already"), "{store}: {refused}");
            until_over(&server);
        }
        let all = peak_kib(server.pid());
        assert!(all < one + 200 * 1_024, "{store}: {one} KiB for one, {all} KiB for all");
        assert_eq!(copies(&place), Vec::<OsString>::new(), "{store}");
    }
}

/// Whether the server has begun to answer.
fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        peeked => peeked.unwrap() > 0,
    }
}

#[test]
fn an_abandoned_backup_that_a_kill_cut_short_is_gone_after_the_next_start() {
    for store in FILES {
        let place = Place::new(store);
        place.fill(20_000);
        // A copy may lose its name between the look and the kill.
        for round in 0.. {
            assert!(round < 100, "{store}: no kill came while a copy was made");
            let server = place.serve(&["--workers", "0"]);
            let client = server.send("GET", "/backup", "");
            while copies(&place).is_empty() && !is_answered(&client) {}
            drop(client);
            server.kill();
            if !copies(&place).is_empty() {
                break;
            }
        }
        let server = place.serve(&["--workers", "0"]);
        assert_eq!(copies(&place), Vec::<OsString>::new(), "{store}");
        assert!(get(&server, "/backup").starts_with("HTTP/1.1 200 "), "{store}");
        assert_eq!(copies(&place), Vec::<OsString>::new(), "{store}");
    }
}
