//! Three nodes under load, killed and restarted one after the other and all at once, with a
//! restart of the database in between (FAULTS N1 and P4): lost = 0, no token twice, one verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use serde_json::Value;
use windlass_tests::postgres_server::PostgresServer;

use crate::common::{Place, Server};

const NODES: usize = 3;
/// How many jobs are settled between two faults.
const STEP: usize = 60;

/// What clients know.
#[derive(Default)]
struct Known {
    addresses: RwLock<Vec<SocketAddr>>,
    ended: AtomicBool,
    keys: AtomicUsize,
    /// Acknowledged jobs by their key.
    stored: Mutex<BTreeMap<String, u64>>,
    /// Tokens in the order in which they were given out.
    tokens: Mutex<Vec<String>>,
    /// Jobs whose completion was acknowledged, with the token.
    settled: Mutex<Vec<(u64, String)>>,
}

impl Known {
    fn address(&self, n: usize) -> SocketAddr {
        let addresses = self.addresses.read().unwrap();
        addresses[n % addresses.len()]
    }

    /// A request that may fail in any way.
    fn ask(&self, n: usize, path: &str, body: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(self.address(n)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let status = text.split(' ').nth(1)?.parse().ok()?;
        let body = text.split_once("\r\n\r\n")?.1;
        Some((status, serde_json::from_str(body).ok()?))
    }

    /// Enqueues jobs, each under a key until some node acknowledges it.
    fn produce(&self, mut n: usize) {
        while !self.ended.load(Ordering::Relaxed) {
            let key = format!("k{}", self.keys.fetch_add(1, Ordering::Relaxed));
            let body = format!(
                r#"{{"idempotency_key":"{key}","visibility_timeout_ms":2000,"max_retries":50}}"#
            );
            loop {
                n += 1;
                if let Some((200 | 202, reply)) = self.ask(n, "/jobs", &body) {
                    let id = reply["job"]["id"].as_u64().unwrap();
                    self.stored.lock().unwrap().insert(key, id);
                    break;
                }
                std::thread::yield_now();
            }
        }
    }

    /// Claims and completes jobs, each call at another node, until nothing is left.
    fn work(&self, mut n: usize) {
        let total = |known: &Self| known.stored.lock().unwrap().len();
        while !self.ended.load(Ordering::Relaxed) || self.done().len() < total(self) {
            n += 1;
            let claim = format!(r#"{{"worker":"w{n}","max":4,"wait_ms":200}}"#);
            let Some((200, reply)) = self.ask(n, "/jobs/poll", &claim) else { continue };
            for job in reply["jobs"].as_array().unwrap() {
                let token = job["lease"]["token"].as_str().unwrap().to_owned();
                self.tokens.lock().unwrap().push(token.clone());
                self.complete(n + 1, job["id"].as_u64().unwrap(), token);
            }
        }
    }

    /// Reports until some node answers: accepted, or refused because the lease is lost.
    fn complete(&self, mut n: usize, id: u64, token: String) {
        let body = format!(r#"{{"token":"{token}","result":"{token}"}}"#);
        loop {
            n += 1;
            match self.ask(n, &format!("/jobs/{id}/complete"), &body) {
                Some((200, _)) => return self.settled.lock().unwrap().push((id, token)),
                Some((409, _)) => return,
                _ => std::thread::yield_now(),
            }
        }
    }

    fn done(&self) -> BTreeSet<u64> {
        self.settled.lock().unwrap().iter().map(|(id, _)| *id).collect()
    }

    fn wait_for_more(&self) {
        let wanted = self.done().len() + STEP;
        while self.done().len() < wanted {
            std::thread::yield_now();
        }
    }
}

#[test]
fn nodes_and_database_that_are_killed_under_load_lose_nothing_and_give_no_token_twice() {
    let Some(database) = PostgresServer::start(&[]) else { return };
    let url = database.tcp_url(database.port(), "windlass");
    let place = Place { store: url, ..Place::new("sqlite") };
    let mut nodes: Vec<Option<Server>> = (0..NODES).map(|_| Some(place.start(&[]))).collect();
    let known = Known::default();
    let addresses = |nodes: &[Option<Server>]| nodes.iter().flatten().map(|n| n.address).collect();
    *known.addresses.write().unwrap() = addresses(&nodes);
    std::thread::scope(|scope| {
        for n in 0..3 {
            let known = &known;
            scope.spawn(move || known.produce(n));
            scope.spawn(move || known.work(n));
        }
        let mut restart = |which: &[usize], signal: &str| {
            known.wait_for_more();
            for n in which {
                nodes[*n].as_ref().unwrap().signal(signal);
            }
            for n in which {
                let (status, said) = nodes[*n].take().unwrap().end();
                assert!(signal == "-KILL" || status.success(), "{said}");
                nodes[*n] = Some(place.start(&[]));
                *known.addresses.write().unwrap() = addresses(&nodes);
            }
        };
        for n in 0..NODES {
            restart(&[n], "-KILL");
        }
        known.wait_for_more();
        database.stop();
        database.resume();
        restart(&[0, 1, 2], "-KILL");
        for n in 0..NODES {
            restart(&[n], "-TERM");
        }
        known.wait_for_more();
        known.ended.store(true, Ordering::Relaxed);
    });
    let node = nodes[0].as_ref().unwrap();
    let (stored, settled) =
        (known.stored.into_inner().unwrap(), known.settled.into_inner().unwrap());
    let ids: BTreeSet<u64> = stored.values().copied().collect();
    assert_eq!(ids.len(), stored.len(), "one job per key");
    let tokens = known.tokens.into_inner().unwrap();
    let distinct: BTreeSet<&String> = tokens.iter().collect();
    assert_eq!(distinct.len(), tokens.len(), "a token was given out twice");
    let done: BTreeMap<u64, &String> = settled.iter().map(|(id, token)| (*id, token)).collect();
    assert_eq!(done.len(), settled.len(), "a job has two verdicts");
    assert_eq!(done.keys().copied().collect::<BTreeSet<u64>>(), ids, "lost or unexpected jobs");
    let counts = node.get("/queues").json()["queues"][0]["counts"].clone();
    assert_eq!(counts["done"], ids.len(), "{counts}");
    for (id, token) in done.iter().take(50) {
        assert_eq!(node.job(*id)["result"], token.as_str());
    }
    assert_eq!(node.get("/doctor").json()["ok"], true);
}
