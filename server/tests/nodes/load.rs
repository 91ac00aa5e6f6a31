//! Clients that enqueue, claim and complete at several nodes while these or their store fail, and
//! what the clients know in the end: nothing that was acknowledged is lost, nothing is there that
//! no client asked for, a job has one verdict, and no token was given out twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, RwLock};
use std::time::Duration;

use serde_json::Value;

use crate::cluster::{now, tell};
use crate::common::{Place, Server};

/// How many nodes there are.
pub(crate) const NODES: usize = 3;
/// How many jobs are settled between two faults.
const STEP: usize = 30;
/// How long clients have for that.
const PATIENCE: Duration = Duration::from_mins(2);

/// The nodes, each of which can be ended and started again.
pub(crate) struct Cluster<'p> {
    place: &'p Place,
    args: [&'p [&'p str]; NODES],
    servers: [Option<Server>; NODES],
}

impl<'p> Cluster<'p> {
    fn start(place: &'p Place, args: [&'p [&'p str]; NODES]) -> Self {
        Self { place, args, servers: args.map(|args| Some(place.start(args))) }
    }

    pub(crate) fn node(&self, n: usize) -> &Server {
        self.servers[n].as_ref().expect("it runs")
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().flatten()
    }

    /// Waits for the end of a node.
    pub(crate) fn end(&mut self, load: &Load, n: usize) -> (ExitStatus, String) {
        let ended = self.servers[n].take().expect("it runs").end();
        load.use_nodes(self);
        ended
    }

    /// Starts a node that was ended.
    pub(crate) fn begin(&mut self, load: &Load, n: usize) {
        self.servers[n] = Some(self.place.start(self.args[n]));
        load.use_nodes(self);
    }

    /// Sends a signal that ends them to these nodes, and starts them again.
    pub(crate) fn restart(&mut self, load: &Load, which: &[usize], signal: &str) {
        load.wait_for_more();
        for n in which {
            self.node(*n).signal(signal);
        }
        for n in which {
            let (status, said) = self.servers[*n].take().expect("it runs").end();
            assert!(signal == "-KILL" || status.success(), "{said}");
            self.begin(load, *n);
        }
    }
}

/// Clients enqueue and work.
const RUN: u8 = 0;
/// Clients work, and enqueue nothing.
const FINISH: u8 = 1;
/// Clients stop once all jobs are settled.
const DRAIN: u8 = 2;
/// Clients stop at once: the test has failed.
const GIVE_UP: u8 = 3;

/// The clients, and what they know.
#[derive(Default)]
pub(crate) struct Load {
    addresses: RwLock<Vec<SocketAddr>>,
    phase: AtomicU8,
    keys: AtomicUsize,
    /// Acknowledged jobs by their key.
    stored: Mutex<BTreeMap<String, u64>>,
    /// Tokens in the order in which they were given out.
    tokens: Mutex<Vec<String>>,
    /// Jobs whose completion was acknowledged, with the token.
    settled: Mutex<Vec<(u64, String)>>,
    progress: Condvar,
    /// How many answers had which status, other than success.
    refused: Mutex<BTreeMap<u16, usize>>,
    /// How long service took to resume after each fault, in seconds.
    resumed: Mutex<Vec<f64>>,
}

/// Runs clients at three nodes on this store while `faults` happen, and checks what they know.
pub(crate) fn under_load(
    name: &str,
    place: &Place,
    args: [&[&str]; NODES],
    faults: impl FnOnce(&Load, &mut Cluster<'_>),
) {
    let mut cluster = Cluster::start(place, args);
    let load = Load::default();
    load.use_nodes(&cluster);
    std::thread::scope(|scope| {
        let load = &load;
        let producers = [0, 1, 2].map(|n| scope.spawn(move || load.produce(n)));
        for n in 0..NODES {
            scope.spawn(move || load.work(n));
        }
        let _ended = Ended(load);
        faults(load, &mut cluster);
        load.phase.store(FINISH, Ordering::SeqCst);
        for producer in producers {
            producer.join().unwrap();
        }
    });
    load.check(name, cluster.node(0));
}

/// Has the clients end, whether the test has failed or not.
struct Ended<'l>(&'l Load);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let phase = if std::thread::panicking() { GIVE_UP } else { DRAIN };
        self.0.phase.store(phase, Ordering::SeqCst);
    }
}

impl Load {
    fn use_nodes(&self, cluster: &Cluster<'_>) {
        let addresses = cluster.running().map(|node| node.address).collect();
        *self.addresses.write().unwrap() = addresses;
    }

    /// Leaves a node out until the nodes are used again.
    pub(crate) fn spare(&self, node: &Server) {
        self.addresses.write().unwrap().retain(|address| *address != node.address);
    }

    /// Uses all nodes that run.
    pub(crate) fn use_all(&self, cluster: &Cluster<'_>) {
        self.use_nodes(cluster);
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::SeqCst)
    }

    /// A request that may fail in any way. After one that did, it waits for a moment.
    fn ask(&self, n: usize, path: &str, body: &str) -> Option<(u16, Value)> {
        let answer = self.try_ask(n, path, body);
        match &answer {
            Some((200 | 202 | 409, _)) => {}
            other => {
                let status = other.as_ref().map_or(0, |(status, _)| *status);
                *self.refused.lock().unwrap().entry(status).or_default() += 1;
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
        answer
    }

    fn try_ask(&self, n: usize, path: &str, body: &str) -> Option<(u16, Value)> {
        let address = {
            let addresses = self.addresses.read().unwrap();
            *addresses.get(n.checked_rem(addresses.len())?)?
        };
        let mut stream = TcpStream::connect(address).ok()?;
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
        while self.phase() == RUN {
            let key = format!("k{}", self.keys.fetch_add(1, Ordering::Relaxed));
            let body = format!(
                r#"{{"idempotency_key":"{key}","visibility_timeout_ms":2000,"max_retries":50}}"#
            );
            while self.phase() != GIVE_UP {
                n += 1;
                if let Some((200 | 202, reply)) = self.ask(n, "/jobs", &body) {
                    let id = reply["job"]["id"].as_u64().unwrap();
                    self.stored.lock().unwrap().insert(key, id);
                    break;
                }
            }
        }
    }

    /// Claims and completes jobs, each call at another node, until nothing is left.
    fn work(&self, mut n: usize) {
        let stored = || self.stored.lock().unwrap().len();
        while self.phase() < DRAIN || (self.phase() == DRAIN && self.settled() < stored()) {
            n += 1;
            let claim =
                format!(r#"{{"worker":"w{n}","max":4,"wait_ms":200,"queues":["default"]}}"#);
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
        while self.phase() != GIVE_UP {
            n += 1;
            match self.ask(n, &format!("/jobs/{id}/complete"), &body) {
                Some((200, _)) => {
                    self.settled.lock().unwrap().push((id, token));
                    return self.progress.notify_all();
                }
                Some((409, _)) => return,
                _ => {}
            }
        }
    }

    fn settled(&self) -> usize {
        self.settled.lock().unwrap().len()
    }

    /// How many requests had no answer, or one that is neither success nor a conflict.
    pub(crate) fn refused(&self) -> usize {
        self.refused.lock().unwrap().values().sum()
    }

    /// Waits until some more jobs are settled.
    pub(crate) fn wait_for_more(&self) {
        let settled = self.settled.lock().unwrap();
        let wanted = settled.len() + STEP;
        let few = |settled: &mut Vec<(u64, String)>| settled.len() < wanted;
        let (settled, late) = self.progress.wait_timeout_while(settled, PATIENCE, few).unwrap();
        let refused = self.refused.lock().unwrap();
        let count = settled.len();
        assert!(!late.timed_out(), "{count} of {wanted} jobs are settled; refused: {refused:?}");
    }

    /// Waits until every node is ready, and jobs are settled again; notes how long that takes.
    pub(crate) fn wait_for_service(&self, cluster: &Cluster<'_>) {
        let started = now();
        for node in cluster.running() {
            node.until_status("/readyz", 200);
        }
        self.wait_for_more();
        self.resumed.lock().unwrap().push(started.elapsed().as_secs_f64());
    }

    fn check(self, name: &str, node: &Server) {
        let (stored, settled) =
            (self.stored.into_inner().unwrap(), self.settled.into_inner().unwrap());
        let ids: BTreeSet<u64> = stored.values().copied().collect();
        let tokens = self.tokens.into_inner().unwrap();
        let distinct: BTreeSet<&String> = tokens.iter().collect();
        let done: BTreeMap<u64, &String> = settled.iter().map(|(id, token)| (*id, token)).collect();
        let queue = node.get("/queues/default").json();
        let all: u64 =
            queue["counts"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        let lost = ids.iter().filter(|id| !done.contains_key(id)).count();
        let mut figures = format!(
            "{name}: acknowledged {}, lost {lost}, duplicates run {}, refused {:?}",
            ids.len(),
            distinct.len().saturating_sub(done.len()),
            self.refused.into_inner().unwrap(),
        );
        let resumed = self.resumed.into_inner().unwrap();
        if let Some(longest) = resumed.iter().copied().reduce(f64::max) {
            let times = resumed.len();
            write!(figures, ", resumed {times} times, within {longest:.1} s").unwrap();
        }
        tell(&figures);
        assert_eq!(ids.len(), stored.len(), "one job per key");
        assert_eq!(distinct.len(), tokens.len(), "a token was given out twice");
        assert_eq!(done.len(), settled.len(), "a job has two verdicts");
        assert_eq!(lost, 0, "of {}", ids.len());
        let unexpected = done.keys().filter(|id| !ids.contains(id)).count();
        assert_eq!((unexpected, all), (0, ids.len() as u64), "unexpected jobs: {queue}");
        assert_eq!(queue["counts"]["done"], ids.len(), "{queue}");
        for (id, token) in done.iter().take(50) {
            assert_eq!(node.job(*id)["result"], token.as_str());
        }
        assert_eq!(node.get("/doctor").json()["ok"], true);
    }
}
