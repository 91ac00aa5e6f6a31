//! The real server as a child process, and an HTTP client. Nothing is measured here.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::measure::{Outcome, resident_in, time};

/// The binary `windlass`: the one that is given, or the one beside this program.
pub(crate) fn binary(given: Option<&Path>) -> Outcome<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("windlass"));
    Ok(given.map(Path::to_path_buf).or_else(beside).ok_or("where is the binary?")?)
}

/// The real server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
    /// Kept, since a write to a closed pipe fails.
    _out: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it on a store, given as for `--store`, and waits until it prints its address. Without
    /// a binary it is the one beside this program.
    pub(crate) fn start(given: Option<&Path>, store: &str, further: &[&str]) -> Outcome<Self> {
        let binary = binary(given)?;
        let child = Command::new(&binary)
            .args(["--store", store, "serve", "--listen", "127.0.0.1:0", "--log-level", "warn"])
            .args(further)
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| {
            format!(
                "{}: {error}; build it: cargo build --release -p windlass-server",
                binary.display()
            )
        })?;
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().ok_or("no output")?);
        out.read_line(&mut line)?;
        let address = line.trim().rsplit("://").next().ok_or("no address")?.parse()?;
        Ok(Self { child, address, _out: out })
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends it a signal, such as `-STOP`.
    pub(crate) fn signal(&self, name: &str) -> Outcome<()> {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("kill {name} failed").into()) }
    }

    /// Waits for its end after a signal.
    pub(crate) fn end(mut self) -> Outcome<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Its resident memory, from `/proc`.
    pub(crate) fn resident_kib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        status.map_or(0, |status| resident_in(&status))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A keep-alive connection. It parses no more of a head than it needs: CPU time of the client is
/// taken from the server.
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

    /// Sends one request; returns status and body of the answer.
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

/// Status of an answer, start and end of its body; `None` if its head is incomplete.
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

/// Opens this number of connections and calls `run` for each, with its number; all on one thread,
/// to leave the CPU to the server. Returns the time without connecting, and all results.
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
