//! A disk that fills up under a running server: what was acknowledged stays, what waits can still
//! be run, and new jobs are taken again once there is space.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{Place, STORES, Server, piped};

/// A server whose store lies on a small disk of its own, in a mount namespace that ends with it.
fn on_small_disk(place: &Place) -> Server {
    std::fs::create_dir(place.path("data")).unwrap();
    let inner = place.command(&["--listen", "127.0.0.1:0"]);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.arg("mount -t tmpfs -o size=160m,mode=700 tmpfs data && exec \"$0\" \"$@\"");
    command.arg(inner.get_program()).args(inner.get_args());
    command.current_dir(place.dir.path());
    Server::of(piped(command).spawn().unwrap())
}

/// A file on that disk, seen from outside.
fn inside(place: &Place, server: &Server, name: &str) -> PathBuf {
    let path = place.path("data").join(name);
    PathBuf::from(format!("/proc/{}/root{}", server.pid(), path.display()))
}

/// Takes all the space that is left on that disk, or this much.
fn fill(file: &Path, bytes: usize) {
    let mut file = File::create(file).unwrap();
    let block = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        if file.write_all(&block).is_err() {
            break;
        }
    }
}

#[test]
fn a_full_disk_refuses_new_jobs_keeps_the_old_ones_and_heals_by_itself() {
    for store in STORES {
        let place = Place::new(store);
        let server = on_small_disk(&place);
        let (others, last) = (inside(&place, &server, "others"), inside(&place, &server, "last"));
        fill(&others, 64 << 20);
        let body = format!(r#"{{"payload":"{}"}}"#, "x".repeat(500_000));
        let mut acknowledged = Vec::new();
        let refused = loop {
            let reply = server.post("/jobs", &body);
            if reply.status != 202 {
                break reply;
            }
            acknowledged.push(reply.json()["job"]["id"].as_u64().unwrap());
            assert!(acknowledged.len() < 400, "{store}: the disk never was full");
        };
        assert_eq!(refused.refused(), (507, "store-full".into()), "{store}: {}", refused.text());
        assert!(acknowledged.len() > 10, "{store}: {}", acknowledged.len());

        // Stored jobs have the space that new ones were refused.
        for _ in 0..10 {
            complete(&server, &server.claim("w", 1)[0]);
        }

        // Then others take the last byte.
        fill(&last, 1 << 30);
        let refused = server.post("/jobs", &body);
        assert!([503, 507].contains(&refused.status), "{store}: {}", refused.text());
        std::fs::remove_file(&last).unwrap();
        server.until_status("/readyz", 200);

        let mut done = 10;
        while let Some(job) = server.claim("w", 1).pop() {
            complete(&server, &job);
            done += 1;
        }
        assert_eq!(done, acknowledged.len(), "{store}");
        for id in acknowledged {
            assert_eq!(server.job(id)["state"], "done", "{store}");
        }
        std::fs::remove_file(&others).unwrap();
        server.enqueue(&body);
    }
}

fn complete(server: &Server, job: &Value) {
    let body = format!(r#"{{"token":{}}}"#, job["lease"]["token"]);
    let reply = server.post(&format!("/jobs/{}/complete", job["id"]), &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
}
