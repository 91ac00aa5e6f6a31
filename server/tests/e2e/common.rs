//! A running server and a small client. Nothing here sleeps: it waits for lines and answers.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use windlass_tests::postgres_server::PostgresServer;

/// Time limit of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Attempts at something that is not yet as wanted, for twice that long: a number of them would be
/// over sooner the quicker the answers are.
#[expect(clippy::disallowed_methods, reason = "what is waited for takes real time")]
pub(crate) fn attempts() -> impl Iterator<Item = ()> {
    let begun = Instant::now();
    std::iter::repeat(()).take_while(move |()| begun.elapsed() < 2 * PATIENCE)
}

/// The stores in files.
pub(crate) const FILES: [&str; 2] = ["sqlite", "redb"];

/// The stores that every test of the contract runs on. Where PostgreSQL is not installed, that is
/// said and it is left out; in CI it is a failure.
pub(crate) fn stores() -> Vec<&'static str> {
    let postgres = PostgresServer::shared().map(|_| "postgres");
    FILES.into_iter().chain(postgres).collect()
}

/// A store of its own on the server of this process, with ids as other stores give them.
fn postgres_url() -> String {
    let server = PostgresServer::shared().expect("who asks for it knows that it is there");
    format!("{}&id_block=1", server.url(&server.new_schema()))
}

/// A folder with a store, on which servers are started one after the other.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) store: String,
}

impl Place {
    pub(crate) fn new(store: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = match store {
            "postgres" => postgres_url(),
            file => format!("{file}:{}", dir.path().join("data/jobs.db").display()),
        };
        Self { dir, store }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Copies a certificate and its key from `tests/e2e/tls/` to where a server reads them.
    pub(crate) fn certificate(&self, cert: &str, key: &str) -> [String; 2] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/tls");
        [("server.pem", cert), ("server-key.pem", key)].map(|(name, fixture)| {
            let text = std::fs::read_to_string(format!("{folder}/{fixture}")).unwrap();
            self.private_file(name, &text).to_str().unwrap().to_owned()
        })
    }

    /// A file that only its owner can read.
    pub(crate) fn private_file(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["--store", &self.store, "serve"]).args(args);
        command.current_dir(self.dir.path()).env_remove("WINDLASS_TOKEN");
        piped(command)
    }

    /// Starts a server that must refuse to start; returns its exit code and output.
    pub(crate) fn refused(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut child = self.command(args).spawn().unwrap();
        let out = lines(child.stdout.take().unwrap());
        let log = lines(child.stderr.take().unwrap());
        if let Ok(line) = out.recv_timeout(PATIENCE) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it started: {line}");
        }
        let said: Vec<String> = log.iter().collect();
        (child.wait().unwrap().code(), said.join("\n"))
    }

    pub(crate) fn start(&self, args: &[&str]) -> Server {
        let mut args = args.to_vec();
        if !args.contains(&"--listen") {
            args.extend(["--listen", "127.0.0.1:0"]);
        }
        Server::of(self.command(&args).spawn().unwrap())
    }
}

/// The same command with its output captured.
pub(crate) fn piped(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    out: Receiver<String>,
    log: Receiver<String>,
    seen: Vec<String>,
}

impl Server {
    /// One of the given store, with the usual settings.
    pub(crate) fn new(store: &str) -> (Place, Self) {
        Self::with(store, &[])
    }

    pub(crate) fn with(store: &str, args: &[&str]) -> (Place, Self) {
        let place = Place::new(store);
        let server = place.start(args);
        (place, server)
    }

    pub(crate) fn of(mut child: Child) -> Self {
        let out = lines(child.stdout.take().unwrap());
        let log = lines(child.stderr.take().unwrap());
        let first = out.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let _ = child.kill();
            panic!("the server did not start: {:?}", log.iter().collect::<Vec<_>>())
        });
        let address = first.split("://").nth(1).expect("it says where it listens");
        let address = address.parse().unwrap();
        Self { child, address, out, log, seen: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most memory that it has taken, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until the log holds a line with this text.
    pub(crate) fn wait_for_log(&mut self, text: &str) -> String {
        if let Some(line) = self.seen.iter().find(|line| line.contains(text)) {
            return line.clone();
        }
        loop {
            let line = self.log.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {text:?} in the log: {:?}", self.seen));
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for the end, and returns its exit code and whole output.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let mut said = std::mem::take(&mut self.seen);
        said.extend(self.log.iter());
        said.extend(self.out.iter());
        let status = self.child.wait().unwrap();
        (status, said.join("\n"))
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn connect(&self) -> Client {
        Client::to(self.address)
    }

    /// One request on a connection of its own.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.connect().send("GET", path, &[], None)
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.connect().send("POST", path, &[], Some(body))
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&str>) -> Reply {
        self.connect().send(method, path, &[], body)
    }

    /// Enqueues a job and returns its id.
    pub(crate) fn enqueue(&self, body: &str) -> u64 {
        let reply = self.post("/jobs", body);
        assert_eq!(reply.status, 202, "{}", reply.text());
        reply.json()["job"]["id"].as_u64().unwrap()
    }

    /// Claims up to `max` jobs of the default queue.
    pub(crate) fn claim(&self, worker: &str, max: usize) -> Vec<Value> {
        let body = format!(r#"{{"worker":"{worker}","max":{max}}}"#);
        let reply = self.post("/jobs/poll", &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["jobs"].as_array().unwrap().clone()
    }

    pub(crate) fn job(&self, id: u64) -> Value {
        self.get(&format!("/jobs/{id}")).json()
    }

    /// Repeats a request until it has this status.
    pub(crate) fn until_status(&self, path: &str, status: u16) {
        let good = attempts().any(|()| self.get(path).status == status);
        assert!(good, "{path} never was {status}");
    }

    /// Repeats a request until the answer satisfies `good`.
    pub(crate) fn until(&self, path: &str, good: impl Fn(&Value) -> bool) -> Value {
        for () in attempts() {
            let reply = self.get(path).json();
            if good(&reply) {
                return reply;
            }
        }
        panic!("{path} never was as wanted")
    }
}

impl Drop for Server {
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

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
    pub(crate) token: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    /// The name of the problem.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let json = self.json();
        assert_eq!(json["status"], self.status);
        assert!(!json["detail"].as_str().unwrap().is_empty());
        json["type"].as_str().unwrap().trim_start_matches("urn:windlass:error:").into()
    }

    /// Status and name of the problem together.
    pub(crate) fn refused(&self) -> (u16, String) {
        (self.status, self.problem())
    }

    /// The pointers of the fields that were refused.
    pub(crate) fn pointers(&self) -> Vec<String> {
        let json = self.json();
        let errors = json["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["pointer"].as_str().unwrap().into()).collect()
    }
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader, token: None }
    }

    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Reply {
        self.ask(method, path, headers, body);
        self.reply().expect("an answer")
    }

    /// Sends without waiting for the answer.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        let given = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if !given("host") {
            let _ = write!(head, "host: {}\r\n", self.stream.peer_addr().unwrap());
        }
        if let Some(token) = &self.token {
            let _ = write!(head, "authorization: Bearer {token}\r\n");
        }
        if let Some(body) = body {
            if !given("content-type") {
                head.push_str("content-type: application/json\r\n");
            }
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        head.push_str(body.unwrap_or_default());
        // A server that refuses early may close before it has read everything.
        let _ = self.stream.write_all(head.as_bytes());
    }

    /// Sends bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// The next answer; `None` if the connection ended.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        let (status, headers) = self.head()?;
        let find = |name: &str| {
            headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        let mut body = Vec::new();
        if let Some(length) = find("content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.reader.read_exact(&mut body).ok()?;
        } else if find("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk() {
                body.extend(chunk);
            }
        }
        Some(Reply { status, headers, body })
    }

    /// The status and the headers of the next answer.
    pub(crate) fn head(&mut self) -> Option<(u16, Vec<(String, String)>)> {
        let status = self.line()?;
        let status = status.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.into()));
        }
        Some((status, headers))
    }

    /// The next chunk of a stream; `None` at its end.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(&self.line()?, 16).ok()?;
        let mut chunk = vec![0; length + 2];
        self.reader.read_exact(&mut chunk).ok()?;
        chunk.truncate(length);
        (length > 0).then_some(chunk)
    }

    /// The next line of a stream; `None` at its end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().into())
    }

    /// Whether the server has closed this connection; it waits for that.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// The operations of the OpenAPI document: method, path, scope, example.
pub(crate) fn operations() -> Vec<(String, String, Option<String>, Option<Value>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let scope = operation["x-scope"].as_str().map(Into::into);
            let content = &operation["requestBody"]["content"]["application/json"];
            let example = content.get("example").cloned();
            operations.push((method.to_uppercase(), path.clone(), scope, example));
        }
    }
    operations
}
