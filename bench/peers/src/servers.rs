//! Servers as children of this process: Redis for BullMQ, PostgreSQL for the queues on it.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use windlass_peers_plan::Outcome;
use windlass_tests::postgres_server::{PASSWORD, PostgresServer, USER};

use std::sync::atomic::{AtomicU64, Ordering};

/// A port that no process listens on.
pub(crate) fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A Redis of its own; killed when dropped.
pub(crate) struct Redis {
    child: Child,
    /// The port it listens on.
    pub(crate) port: u16,
}

impl Redis {
    /// Starts it as it comes, or so that it syncs every write before it answers.
    pub(crate) fn start(folder: &Path, full: bool) -> Outcome<Self> {
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(folder);
        if full {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        let child = command.stdout(Stdio::null()).spawn()?;
        Ok(Self { child, port })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A PostgreSQL of its own, with `fsync` and `synchronous_commit` on; removed when dropped.
pub(crate) struct Postgres {
    server: PostgresServer,
    databases: AtomicU64,
}

impl Postgres {
    /// Starts it, with room for the connections of four processes.
    pub(crate) fn start() -> Outcome<Self> {
        let settings = ["shared_buffers = 512MB", "max_connections = 400"];
        let server = PostgresServer::start(&settings).ok_or("install postgresql")?;
        Ok(Self { server, databases: AtomicU64::new(0) })
    }

    /// Makes an empty database.
    pub(crate) fn database(&self) -> Database<'_> {
        let name = format!("peers_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.server.run(&format!("CREATE DATABASE {name}"));
        let port = self.server.port();
        let url = format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/{name}");
        Database { server: &self.server, name, url }
    }
}

/// An empty database; removed when dropped.
pub(crate) struct Database<'a> {
    server: &'a PostgresServer,
    name: String,
    /// With user and password.
    pub(crate) url: String,
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        self.server.run(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        // What one has left to be written is not paid for by the next.
        self.server.run("CHECKPOINT");
    }
}
