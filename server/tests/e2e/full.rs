//! A disk that fills up under a running server: what was acknowledged stays, what waits can still
//! be run, and new jobs are taken again once there is space.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{FILES, Place, Server, piped};

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
    for store in FILES {
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

        // Stored jobs have the space that new ones were refused; the server is ready for that.
        for _ in 0..10 {
            let ready = server.get("/readyz");
            assert_eq!((ready.status, &ready.json()["enqueues"]), (200, &Value::Bool(false)));
            complete(&server, &server.claim("w", 1)[0]);
            assert_eq!(server.post("/jobs", &body).status, 507);
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
        assert_eq!(server.get("/readyz").json()["enqueues"], true);
    }
}

fn complete(server: &Server, job: &Value) {
    let body = format!(r#"{{"token":{}}}"#, job["lease"]["token"]);
    let reply = server.post(&format!("/jobs/{}/complete", job["id"]), &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[test]
fn a_backup_that_has_no_room_is_refused_before_anything_is_copied() {
    for store in FILES {
        let place = Place::new(store);
        let server = on_small_disk(&place);
        fill(&inside(&place, &server, "others"), 64 << 20);
        let body = format!(r#"{{"payload":"{}"}}"#, "x".repeat(500_000));
        while server.post("/jobs", &body).status == 202 {}
        let refused = server.get("/backup");
        assert_eq!(refused.refused(), (507, "store-full".into()), "{store}: {}", refused.text());
        assert!(refused.text().contains("the copy takes up to"), "{store}: {}", refused.text());
        let left = std::fs::read_dir(inside(&place, &server, "")).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.contains("backup")).count(), 0, "{store}");
    }
}

#[test]
fn a_head_of_a_backup_or_a_check_neither_copies_nor_reads() {
    let (_place, server) = Server::new("sqlite");
    for path in ["/backup", "/doctor"] {
        let mut client = server.connect();
        let request = format!("HEAD {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert!(client.raw(request.as_bytes()));
        let (status, headers) = client.head().unwrap();
        assert_eq!(status, 200, "{path}");
        // Its length is known only once it was made.
        assert!(headers.iter().all(|(name, _)| name != "content-length"), "{path}: {headers:?}");
    }
}
