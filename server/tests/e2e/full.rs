//! A disk that fills up under a running server: what was acknowledged stays, what waits can still
//! be run, and new jobs are taken again once there is space.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{Client, FILES, Place, Server, piped};
use crate::systemd::NotifySocket;

/// A server whose store lies on a small disk of its own, in a mount namespace that ends with it.
fn on_small_disk(place: &Place) -> Server {
    start(small_disk(place))
}

fn start(command: Command) -> Server {
    Server::of(piped(command).spawn().unwrap())
}

fn small_disk(place: &Place) -> Command {
    std::fs::create_dir(place.path("data")).unwrap();
    let inner = place.command(&["--listen", "127.0.0.1:0"]);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    let mount = "mount -t tmpfs -o size=160m,mode=700 tmpfs data";
    command.arg(format!("{mount} && WATCHDOG_PID=$$ exec \"$0\" \"$@\""));
    command.arg(inner.get_program()).args(inner.get_args());
    command.current_dir(place.dir.path());
    command
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
        let systemd = NotifySocket::new(&place);
        let mut command = small_disk(&place);
        systemd.watch(&mut command);
        let server = start(command);
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
        fed_while_refused(&systemd, &server, &body);

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
        fed_while_refused(&systemd, &server, &body);
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

/// A restart would make no space: the watchdog is fed while new jobs are refused.
fn fed_while_refused(systemd: &NotifySocket, server: &Server, body: &str) {
    systemd.skip();
    for _ in 0..3 {
        let refused = server.post("/jobs", body);
        assert!([503, 507].contains(&refused.status), "{}", refused.text());
        assert_eq!(systemd.next(), "WATCHDOG=1");
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
        assert_eq!(copies(&place, &server), [""; 0], "{store}");
    }
}

/// The names of copies beside the store.
fn copies(place: &Place, server: &Server) -> Vec<String> {
    let files = std::fs::read_dir(inside(place, server, "")).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("backup")).collect()
}

/// The last space is for the jobs that are stored: a copy ends before it takes it.
#[test]
fn a_backup_whose_disk_fills_up_meanwhile_ends_clearly_and_leaves_the_last_space_free() {
    const MIB: u64 = 1 << 20;
    for store in FILES {
        let place = Place::new(store);
        let server = on_small_disk(&place);
        let body = format!(r#"{{"payload":"{}"}}"#, "x".repeat(500_000));
        for _ in 0..60 {
            server.enqueue(&body);
        }
        let (folder, others) = (inside(&place, &server, ""), inside(&place, &server, "others"));
        let last = inside(&place, &server, "last");
        let free = || windlass_store_file::free(&folder).unwrap();
        // What a copy may take by what is checked before, and what it takes.
        let room = free();
        let file = std::fs::metadata(inside(&place, &server, "jobs.db")).unwrap().len();
        let copy = u64::try_from(server.get("/backup").body.len()).unwrap();
        let most = file.max(copy);
        let size = |bytes: u64| usize::try_from(bytes).unwrap();
        // Room for it and 2 MiB more. When it has begun, others take 16.
        fill(&others, size(room - most - 34 * MIB));
        let address = server.address;
        let is_begun = |name: &String| {
            let file = inside(&place, &server, name).metadata();
            file.is_ok_and(|file| file.blocks() * 512 < copy / 4)
        };
        let caught = (0..200).any(|_| {
            let (caught, reply, lowest) = std::thread::scope(|scope| {
                let ask = move || Client::to(address).send("GET", "/backup", &[], None);
                let asked = scope.spawn(ask);
                while copies(&place, &server).is_empty() && !asked.is_finished() {}
                server.signal("-STOP");
                let caught = copies(&place, &server).first().is_some_and(is_begun);
                if caught {
                    fill(&last, size(most - copy + 16 * MIB));
                }
                server.signal("-CONT");
                let mut lowest = free();
                while !asked.is_finished() {
                    lowest = lowest.min(free());
                }
                (caught, asked.join().unwrap(), lowest)
            });
            if caught {
                assert_eq!(reply.refused(), (507, "store-full".into()), "{store}");
                // Less by what is written between two looks at the disk.
                assert!(lowest >= 24 * MIB, "{store}: {} KiB were left", lowest >> 10);
            }
            caught
        });
        assert!(caught, "{store}: no copy was stopped in its first quarter");
        assert_eq!(copies(&place, &server), [""; 0], "{store}");
        std::fs::remove_file(&last).unwrap();
        assert!(free() >= 32 * MIB, "{store}");
        server.enqueue(&body);
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
