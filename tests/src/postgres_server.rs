//! A private PostgreSQL server for tests and benches: in a directory of its own, on a port of its
//! own, gone when the process that started it ends, however it ends.
//!
//! The data directory is in memory where it can be, so that syncs cost little; they are not turned
//! off, since the store refuses such a server. Connections over the socket need no password, those
//! over TCP need [`PASSWORD`].

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::on_disk::scratch;

/// The superuser of the server.
pub const USER: &str = "windlass";
/// The password of [`USER`].
pub const PASSWORD: &str = "secret-of-the-tests";

/// Numbers the schemas of this process.
static SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// A server that runs.
#[derive(Debug)]
pub struct PostgresServer {
    dir: TempDir,
    port: u16,
    binaries: PathBuf,
    running: Mutex<Option<Running>>,
}

/// The shell that watches over a server, and the pipe whose end it waits for.
#[derive(Debug)]
struct Running {
    shell: Child,
    alive: Option<ChildStdin>,
}

impl PostgresServer {
    /// The server of this process, which is started by the first who asks; `None` if PostgreSQL is
    /// not installed. With `CI=true` in the environment that is a failure.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<PostgresServer>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[])).as_ref()
    }

    /// Starts a server with further settings, such as `"max_connections=20"`.
    pub fn start(settings: &[&str]) -> Option<Self> {
        Self::start_with(settings, &[])
    }

    /// The same, with files beside its data that only it can read: in settings, `{dir}` is where
    /// they are.
    pub fn start_with(settings: &[&str], files: &[(&str, &[u8])]) -> Option<Self> {
        let Some(binaries) = binaries() else {
            not_installed();
            return None;
        };
        let dir = scratch();
        let (uid, gid) = owner();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("it is ours");
        let secret = dir.path().join("secret");
        fs::write(&secret, PASSWORD).expect("a file can be written");
        for path in [dir.path(), &secret] {
            chown(path, Some(uid), Some(gid)).expect("a directory can be given away");
        }
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr());
        let port = port.expect("there is a free port").port();
        let mut made = Command::new(binaries.join("initdb"));
        made.args(["--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync", "-E", "UTF8"]);
        made.args(["--locale=C", "-U", USER, "--pwfile"]).arg(&secret).arg("-D");
        made.arg(dir.path().join("data"));
        made.uid(uid).gid(gid).current_dir(dir.path());
        let made = made.output().expect("initdb can be run");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "initdb failed: {said}");
        let mut text = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n\
             shared_buffers = 64MB\nmax_connections = 200\ndeadlock_timeout = 100ms\n\
             max_wal_size = 4GB\n",
            dir.path().display()
        );
        for setting in settings {
            let setting = setting.replace("{dir}", &dir.path().display().to_string());
            writeln!(text, "{setting}").expect("a text can be written to");
        }
        for (name, bytes) in files {
            private_file(&dir.path().join(name), bytes, (uid, gid));
        }
        let conf = dir.path().join("data/postgresql.auto.conf");
        fs::write(&conf, text).expect("the settings can be written");
        chown(&conf, Some(uid), Some(gid)).expect("a file can be given away");
        let server = Self { dir, port, binaries, running: Mutex::new(None) };
        server.resume();
        Some(server)
    }

    /// Starts the server again after [`stop`](Self::stop).
    pub fn resume(&self) {
        let (uid, gid) = owner();
        // The shell says when the server is ready. It ends the server at a line, and when the pipe
        // is closed because this process ended: then it removes the directory as well.
        let script = "\"$0/postgres\" -D \"$1/data\" >\"$1/log\" 2>&1 & server=$!; \
                      for _ in $(seq 600); do \
                      \"$0/pg_isready\" -q -h \"$1\" -p \"$2\" && echo ready && break; sleep 0.05; \
                      done; read stop; kept=$?; kill -QUIT $server; wait $server; \
                      [ $kept = 0 ] || rm -rf \"$1\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(&self.binaries).arg(self.dir.path());
        shell.arg(self.port.to_string()).uid(uid).gid(gid).current_dir(self.dir.path());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.process_group(0).spawn().expect("a shell can be run");
        let alive = shell.stdin.take();
        let mut said = String::new();
        let out = shell.stdout.take().expect("its output is piped");
        let read = BufReader::new(out).read_line(&mut said);
        *self.running() = Some(Running { shell, alive });
        assert!(read.is_ok() && said == "ready\n", "the server does not start: {}", self.log());
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the server at once, as a crash would, and waits for its end.
    pub fn stop(&self) {
        if let Some(mut running) = self.running().take() {
            let told = running.alive.as_mut().map(|pipe| pipe.write_all(b"stop\n"));
            drop((told, running.alive.take()));
            let _ = running.shell.wait();
        }
    }

    /// What the server has written to its log.
    pub fn log(&self) -> String {
        let mut text = String::new();
        let read = File::open(self.dir.path().join("log"));
        let _ = read.and_then(|mut file| file.read_to_string(&mut text));
        text
    }

    /// Runs SQL as the superuser.
    pub fn run(&self, sql: &str) -> String {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", "postgres", "-h"]);
        psql.arg(self.dir.path()).args(["-p", &self.port.to_string(), "-c", sql]);
        let ran = psql.output().expect("psql can be run");
        assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    /// Opens a transaction that sees, and so keeps, all rows of now, until it is dropped.
    pub fn hold_snapshot(&self) -> Snapshot {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-At", "-U", USER, "-d", "postgres", "-h"]);
        psql.arg(self.dir.path()).args(["-p", &self.port.to_string()]);
        let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut input = psql.stdin.take().expect("its input is piped");
        let sql = b"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'held';\n";
        input.write_all(sql).and_then(|()| input.flush()).expect("it reads");
        let mut said = String::new();
        let out = psql.stdout.take().expect("its output is piped");
        BufReader::new(out).read_line(&mut said).expect("it answers");
        assert_eq!(said, "held\n");
        Snapshot { psql, input: Some(input) }
    }

    /// The port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a schema, over the socket of the server.
    pub fn url(&self, schema: &str) -> String {
        let socket = self.dir.path().display().to_string().replace('/', "%2F");
        format!("postgres://{USER}@{socket}:{}/postgres?schema={schema}", self.port)
    }

    /// The URL of a schema, over TCP to this port: that of the server, or of a proxy before it.
    pub fn tcp_url(&self, port: u16, schema: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres?schema={schema}")
    }

    /// The name of a schema that nobody else uses.
    pub fn new_schema(&self) -> String {
        format!("t{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
    }
}

/// A foreign transaction that is open.
#[derive(Debug)]
pub struct Snapshot {
    psql: Child,
    input: Option<ChildStdin>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.psql.wait();
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A file that this user alone can read.
fn private_file(path: &Path, bytes: &[u8], (uid, gid): (u32, u32)) {
    fs::write(path, bytes).expect("a file can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    chown(path, Some(uid), Some(gid)).expect("a file can be given away");
}

/// Says that tests were not run.
#[expect(clippy::print_stderr, clippy::disallowed_methods, reason = "the edge of a test")]
fn not_installed() {
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "PostgreSQL is not installed, but CI runs all tests");
    eprintln!("NOT RUN: PostgreSQL (initdb, postgres, psql) is not installed");
}

/// The folder with the programs of the server: on the path, or where Debian puts them.
fn binaries() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "the edge of a test: where programs are")]
    let path = std::env::var("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = path.split(':').map(PathBuf::from).collect();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(debian.map(|version| version.path().join("bin")));
    let complete = |folder: &PathBuf| {
        ["initdb", "postgres", "pg_isready"].iter().all(|name| folder.join(name).exists())
    };
    folders.into_iter().find(complete)
}

/// Who the server runs as: PostgreSQL refuses to run as root.
fn owner() -> (u32, u32) {
    let me = fs::metadata("/proc/self").map(|me| (me.uid(), me.gid()));
    let me = me.unwrap_or((1, 1));
    if me.0 != 0 {
        me
    } else {
        user("postgres").or_else(|| user("nobody")).unwrap_or((65534, 65534))
    }
}

/// The numbers of a user.
fn user(name: &str) -> Option<(u32, u32)> {
    let users = fs::read_to_string(Path::new("/etc/passwd")).ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line.split(':').skip(2).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}
