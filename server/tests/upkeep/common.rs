//! Runs the binary and waits for its output. Nothing here sleeps.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use windlass_tests::postgres_server::PostgresServer;

/// Time limit of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Maximum repetitions of a command before a test fails: each takes about 10 to 50 ms.
pub(crate) const QUESTIONS: usize = 3_000;

/// The stores in files.
pub(crate) const FILES: [&str; 2] = ["sqlite", "redb"];

/// All stores. Where PostgreSQL is not installed, that is said and it is left out; in CI it is a
/// failure.
pub(crate) fn stores() -> Vec<&'static str> {
    let postgres = PostgresServer::shared().map(|_| "postgres");
    FILES.into_iter().chain(postgres).collect()
}

/// A folder with a store.
pub(crate) struct Place {
    dir: TempDir,
    store: String,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Panics unless the exit code is 0.
    pub(crate) fn good(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }
}

impl Place {
    pub(crate) fn new(store: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = match (store, PostgresServer::shared()) {
            ("postgres", Some(server)) => {
                format!("{}&id_block=1", server.url(&server.new_schema()))
            }
            (file, _) => format!("{file}:{}", dir.path().join("data/jobs.db").display()),
        };
        Self { dir, store }
    }

    /// Another store, in a folder of its own for whatever else there is.
    pub(crate) fn of(store: String) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), store }
    }

    /// The store, as it is given to `--store`.
    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The binary on this store, without variables of Windlass in its environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
        command.args(["--store", &self.store]).args(args).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Done {
        ended(self.command(args))
    }

    /// Runs a command against a server.
    pub(crate) fn ask(&self, server: &Running, args: &[&str]) -> Done {
        self.ask_at(server.address(), args)
    }

    pub(crate) fn ask_at(&self, address: &str, args: &[&str]) -> Done {
        let url = format!("http://{address}");
        ended(self.command(&[&["--server", &url], args].concat()))
    }

    /// The same on the store itself, or against the server.
    pub(crate) fn either(&self, server: Option<&Running>, args: &[&str]) -> Done {
        match server {
            Some(server) => self.ask(server, args),
            None => self.run(args),
        }
    }

    pub(crate) fn serve(&self, args: &[&str]) -> Running {
        let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
        Running::of(self.command(&args).spawn().unwrap())
    }

    /// Stores this number of jobs, each with a payload of 1 000 bytes and a key.
    pub(crate) fn fill(&self, jobs: usize) {
        let (mut lines, payload) = (String::new(), "x".repeat(1_000));
        for n in 0..jobs {
            let _ = writeln!(lines, r#"{{"payload":"{payload}","idempotency_key":"{n}"}}"#);
        }
        std::fs::write(self.path("jobs.ndjson"), lines).unwrap();
        self.run(&["enqueue", "--file", "jobs.ndjson"]).good();
    }

    /// A connection to the file of the store, to write what no version of Windlass writes.
    pub(crate) fn sqlite(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path("data/jobs.db")).unwrap()
    }

    /// Repeats a command until its output satisfies `good`.
    pub(crate) fn until(&self, args: &[&str], good: impl Fn(&Value) -> bool) -> Value {
        self.until_shown(None, args, good)
    }

    /// The same, on the store itself or through the server.
    pub(crate) fn until_shown(
        &self,
        server: Option<&Running>,
        args: &[&str],
        good: impl Fn(&Value) -> bool,
    ) -> Value {
        for _ in 0..QUESTIONS {
            let done = self.either(server, args);
            if done.code == Some(0) && good(&done.json()) {
                return done.json();
            }
        }
        panic!("{args:?} never was as wanted: {:?}", self.either(server, args))
    }
}

fn ended(mut command: Command) -> Done {
    let output = command.output().unwrap();
    Done {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

pub(crate) fn kill(name: &str, pid: u64) {
    // It may be gone already.
    let _ = Command::new("kill").args([name, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Reads the rest of an answer. Bytes that are not UTF-8 are replaced.
pub(crate) fn answer(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Peak resident memory of a process in KiB; 0 once it has ended.
pub(crate) fn peak_kib(pid: u64) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// A process that stays; killed when dropped.
pub(crate) struct Running {
    child: Child,
    first: String,
    out: Receiver<String>,
    log: Receiver<String>,
}

impl Running {
    /// Waits for its first line.
    pub(crate) fn of(mut child: Child) -> Self {
        let out = lines(child.stdout.take().unwrap());
        let log = lines(child.stderr.take().unwrap());
        let first = out.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let _ = child.kill();
            panic!("it did not start: {:?}", log.iter().collect::<Vec<_>>())
        });
        Self { child, first, out, log }
    }

    /// The address it listens on.
    pub(crate) fn address(&self) -> &str {
        self.first.split("://").nth(1).expect("it says where it listens")
    }

    pub(crate) fn first(&self) -> &str {
        &self.first
    }

    /// The next line on standard output.
    pub(crate) fn line(&self) -> String {
        self.out.recv_timeout(PATIENCE).expect("it says something")
    }

    /// The next line on standard output, if there is one by now.
    pub(crate) fn next_line(&self) -> Option<String> {
        self.out.try_recv().ok()
    }

    /// Sends a request and reads nothing. The client leaves when the stream is dropped.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let (host, length) = (self.address(), body.len());
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).unwrap();
        stream
    }

    /// The answer to a request, with its head.
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> String {
        answer(self.send(method, path, body))
    }

    pub(crate) fn pid(&self) -> u64 {
        self.child.id().into()
    }

    /// Waits until the log holds a line with this text.
    pub(crate) fn wait_for_log(&self, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            let line = self.log.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {text:?} in the log: {seen:?}"));
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
    }

    /// Kills it, and waits for the end.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Sends SIGTERM, and waits for the end.
    pub(crate) fn stop(self) -> (ExitStatus, String) {
        kill("-TERM", self.pid());
        self.end()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let said: Vec<String> = self.log.iter().collect();
        (self.child.wait().unwrap(), said.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a stream, as they come.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}
