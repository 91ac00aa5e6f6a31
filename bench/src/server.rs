//! The real server as a process of its own, and a client that talks to it. It measures nothing.

use std::fmt::Write as _;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
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

/// A keep-alive connection. It reads no more of a head than it needs: what a client takes of the
/// machine is missing to the server.
pub(crate) struct Client {
    stream: TcpStream,
    request: String,
    answer: Vec<u8>,
}

impl Client {
    /// Connects.
    pub(crate) async fn to(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: String::new(), answer: Vec::with_capacity(4_096) })
    }

    /// Sends one request; the status and the body of its answer.
    pub(crate) async fn send(&mut self, path: &str, body: &str) -> Outcome<(u16, Vec<u8>)> {
        self.request.clear();
        write!(
            self.request,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        self.stream.write_all(self.request.as_bytes()).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err("the server closed the connection".into());
            }
            let Some((status, from, to)) = head(&self.answer)? else { continue };
            while self.answer.len() < to {
                if self.stream.read_buf(&mut self.answer).await? == 0 {
                    return Err("the server closed the connection".into());
                }
            }
            return Ok((status, self.answer[from..to].to_vec()));
        }
    }
}

/// The status of an answer, and where its body begins and ends; nothing if its head is not whole.
fn head(answer: &[u8]) -> Outcome<Option<(u16, usize, usize)>> {
    const LENGTH: &str = "content-length: ";
    // A part of the body may have come already, and may end within a character.
    let text = match std::str::from_utf8(answer) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&answer[..error.valid_up_to()])?,
    };
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    let length = match head.split_once(LENGTH) {
        Some((_, rest)) => rest.split('\r').next().unwrap_or_default().parse()?,
        None => 0,
    };
    let from = head.len() + 4;
    Ok(Some((status, from, from + length)))
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

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let whole = "HTTP/1.1 202 Accepted\r\ncontent-length: 4\r\ndate: x\r\n\r\n\u{e9}\u{e9}";
        let body = whole.len() - 4;
        for most in 0..=whole.len() {
            let found = head(&whole.as_bytes()[..most]).unwrap();
            assert_eq!(found, (most >= body).then_some((202, body, whole.len())), "{most}");
        }
        assert_eq!(head(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(), Some((204, 27, 27)));
        assert!(head(b"HTTP/1.1 many\r\n\r\n").is_err());
    }
}
