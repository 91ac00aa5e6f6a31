//! The real server as a process of its own, and a client that talks to it. It measures nothing.

use std::io::BufRead;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::measure::{Outcome, time};

/// The real server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts it on a store of this kind in a folder, and waits until it says its address. Without
    /// a binary it is the one beside this program.
    pub(crate) fn start(binary: Option<&Path>, store: &str, folder: &Path) -> Outcome<Self> {
        let beside = || Some(std::env::current_exe().ok()?.parent()?.join("windlass"));
        let binary = binary.map(Path::to_path_buf).or_else(beside).ok_or("where is the binary?")?;
        let store = format!("{store}:{}", folder.join(file_name(store)).display());
        let child = Command::new(&binary)
            .args(["--store", &store, "serve", "--listen", "127.0.0.1:0", "--log-level", "warn"])
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| {
            format!(
                "{}: {error}; build it: cargo build --release -p windlass-server",
                binary.display()
            )
        })?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or("no output")?;
        std::io::BufReader::new(out).read_line(&mut line)?;
        let address = line.trim().rsplit("://").next().ok_or("no address")?.parse()?;
        Ok(Self { child, address })
    }

    /// Kills it as `kill -9` does; it has no chance to tidy up.
    pub(crate) fn kill(mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// What it keeps in memory, as Linux says.
    pub(crate) fn resident_kib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The name that a store of this kind has in a folder of a measurement.
fn file_name(store: &str) -> &'static str {
    if store == "redb" { "jobs.redb" } else { "jobs.db" }
}

/// A keep-alive connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Client {
    /// Connects.
    pub(crate) async fn to(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), line: String::new() })
    }

    /// Sends one request; the status and the body of its answer.
    pub(crate) async fn send(&mut self, path: &str, body: &str) -> Outcome<(u16, Vec<u8>)> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.read_line().await?;
        let status = self.line.split(' ').nth(1).ok_or("no status")?.parse()?;
        let mut length = 0;
        loop {
            self.read_line().await?;
            match self.line.split_once(": ") {
                Some(("content-length", value)) => length = value.parse()?,
                Some(_) => {}
                None => break,
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).await?;
        Ok((status, answer))
    }

    async fn read_line(&mut self) -> Outcome<()> {
        self.line.clear();
        if self.stream.read_line(&mut self.line).await? == 0 {
            return Err("the server closed the connection".into());
        }
        self.line.truncate(self.line.trim_end().len());
        Ok(())
    }
}

/// So many connections, each driven to its end by `run`, which is told its number: all on one
/// thread, so that the clients take as little of the machine as they can. How long it took without
/// connecting, and what came of each.
pub(crate) fn drive<T: 'static, F>(
    address: SocketAddr,
    connections: usize,
    run: impl Fn(Client, usize) -> F,
) -> Outcome<(Duration, Vec<T>)>
where
    F: Future<Output = Outcome<T>> + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(runtime.block_on(Client::to(address))?);
    }
    let (came, took) = time(|| {
        LocalSet::new().block_on(&runtime, async {
            let running: Vec<_> = (0..)
                .zip(clients)
                .map(|(at, client)| tokio::task::spawn_local(run(client, at)))
                .collect();
            let mut came = Vec::new();
            for task in running {
                came.push(task.await??);
            }
            Outcome::Ok(came)
        })
    })?;
    Ok((took, came))
}
