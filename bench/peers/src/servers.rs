//! Redis as a child of this process, for the script that drives BullMQ.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use windlass_peers_plan::Outcome;

/// A port that nobody listens on.
pub(crate) fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A Redis of its own; killed when dropped.
pub(crate) struct Redis {
    child: Child,
    /// Where it listens.
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
