//! Faults: nodes are killed, stopped for longer than a lease or ended by a signal, the database
//! ends connections or crashes, a foreign transaction stays open.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::block_in_place;
use tokio::time::sleep;
use windlass_tests::postgres_server::PostgresServer;

use super::clients::Clients;
use crate::dice::Dice;
use crate::measure::Outcome;
use crate::postgres::Sql;
use crate::server::Server;

/// Nodes on one database.
pub(super) struct Cluster {
    pub(super) database: PostgresServer,
    /// The program of the nodes.
    pub(super) binary: PathBuf,
    /// Settings of each node.
    pub(super) settings: Vec<String>,
    pub(super) nodes: Mutex<Vec<Option<Server>>>,
    pub(super) clients: Arc<Clients>,
}

/// The schema of the nodes.
pub(super) const SCHEMA: &str = "soak";
/// Visibility timeout of the jobs.
pub(super) const LEASE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// One node is killed and started again.
    Kill,
    /// All nodes are killed and started again.
    KillAll,
    /// One node is stopped for longer than a lease, then goes on.
    Freeze,
    /// One node after the other is ended by TERM and started again.
    Roll,
    /// The database ends all connections.
    Terminate,
    /// The database crashes and is started again.
    Crash,
    /// A foreign transaction keeps dead rows for some seconds.
    Hold,
}

impl Fault {
    pub(super) const ALL: [Self; 7] = [
        Self::Kill,
        Self::KillAll,
        Self::Freeze,
        Self::Roll,
        Self::Terminate,
        Self::Crash,
        Self::Hold,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillAll => "kill_all",
            Self::Freeze => "freeze",
            Self::Roll => "roll",
            Self::Terminate => "terminate",
            Self::Crash => "crash",
            Self::Hold => "hold",
        }
    }
}

impl Cluster {
    pub(super) fn nodes(&self) -> MutexGuard<'_, Vec<Option<Server>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Value of `--store` for the nodes.
    pub(super) fn store(&self) -> String {
        self.database.url(SCHEMA)
    }

    /// Opens a connection of its own to the database.
    pub(super) fn sql(&self) -> Outcome<Sql> {
        let url = self.store();
        Sql::connect(url.split('?').next().unwrap_or_default())
    }

    /// Starts the nodes that do not run, and gives clients all addresses.
    pub(super) fn start(&self) -> Outcome<()> {
        let mut nodes = self.nodes();
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        for node in nodes.iter_mut().filter(|node| node.is_none()) {
            *node = Some(Server::start(Some(&self.binary), &self.store(), &settings)?);
        }
        self.clients.ledger.listen(nodes.iter().flatten().map(|node| node.address).collect());
        Ok(())
    }

    fn kill(&self, which: impl Fn(usize) -> bool) -> Outcome<()> {
        for (at, node) in self.nodes().iter_mut().enumerate().filter(|(at, _)| which(*at)) {
            node.take().ok_or_else(|| format!("node {at} does not run"))?.kill()?;
        }
        Ok(())
    }

    fn signal(&self, at: usize, name: &str) -> Outcome<()> {
        self.nodes().get(at).and_then(Option::as_ref).ok_or("the node does not run")?.signal(name)
    }

    /// Ends a node as an operator does; an error if it does not end cleanly.
    fn term(&self, at: usize) -> Outcome<()> {
        self.signal(at, "-TERM")?;
        let node = self.nodes().get_mut(at).and_then(Option::take).ok_or("no such node")?;
        let status = node.end()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("a node that was sent TERM ended with {status}").into())
        }
    }

    /// Injects a fault, and repairs it.
    pub(super) async fn inflict(&self, fault: Fault, dice: &mut Dice) -> Outcome<()> {
        let count = self.nodes().len();
        let victim = usize::try_from(dice.below(count as u64))?;
        let away = Duration::from_millis(200 + dice.below(2_000));
        match fault {
            Fault::Kill => {
                block_in_place(|| self.kill(|at| at == victim))?;
                sleep(away).await;
            }
            Fault::KillAll => block_in_place(|| self.kill(|_| true))?,
            Fault::Freeze => {
                self.signal(victim, "-STOP")?;
                sleep(LEASE + away * 2).await;
                self.signal(victim, "-CONT")?;
            }
            Fault::Roll => {
                for at in 0..count {
                    block_in_place(|| self.term(at).and_then(|()| self.start()))?;
                }
            }
            Fault::Terminate => block_in_place(|| self.sql()?.run(TERMINATE))?,
            Fault::Crash => {
                block_in_place(|| self.database.stop());
                sleep(away).await;
                block_in_place(|| self.database.resume());
            }
            Fault::Hold => {
                let held = block_in_place(|| self.database.hold_snapshot());
                sleep(away * 10).await;
                block_in_place(|| drop(held));
            }
        }
        block_in_place(|| self.start())
    }
}

const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
