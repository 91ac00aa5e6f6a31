//! A private PostgreSQL server for tests and benches: own directory, own port, stopped when the
//! process that started it ends, however it ends. The data directory is in memory where it can be,
//! so that syncs cost little; they are not turned off, since the store refuses such a server.
//! Connections over the socket need no password, those over TCP need [`PASSWORD`].

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

/// A library that moves the wall clock of the server by as many seconds as a file says.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    int (*real)(struct timeval *, void *) =
        (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int failed = real(at, zone);
    char text[24] = "";
    int file = open(getenv("AHEAD"), O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, text, sizeof text - 1) > 0) at->tv_sec += atol(text);
    if (file >= 0) close(file);
    return failed;
}
"#;

/// Numbers the schemas of this process.
static SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// A server that runs.
#[derive(Debug)]
pub struct PostgresServer {
    dir: TempDir,
    port: u16,
    binaries: PathBuf,
    /// Whether the folder `small` is a disk of 48 MiB.
    has_small_disk: bool,
    /// Its clock is not that of the machine.
    has_clock: bool,
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
    /// not installed. With `CI` in the environment, whatever its value, that is a failure.
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
        let port = free_port();
        let mut made = Command::new(binaries.join("initdb"));
        made.args(["--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync", "-E", "UTF8"]);
        made.args(["--locale=C", "-U", USER, "--pwfile"]).arg(&secret).arg("-D");
        made.arg(dir.path().join("data"));
        made.uid(uid).gid(gid).current_dir(dir.path());
        let made = made.output().expect("initdb can be run");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "initdb failed: {said}");
        let mut text = address(dir.path(), port);
        text.push_str(
            "shared_buffers = 64MB\nmax_connections = 200\ndeadlock_timeout = 100ms\n\
             max_wal_size = 4GB\n",
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
        let server = Self {
            dir,
            port,
            binaries,
            has_small_disk: false,
            has_clock: false,
            running: Mutex::new(None),
        };
        server.resume();
        Some(server)
    }

    /// Starts a server with a database `jobs` on a disk of its own, which is small and is lost when
    /// the server stops. Everything else of it is elsewhere, also its WAL.
    pub fn start_on_small_disk() -> Option<Self> {
        let mut server = Self::start(&[])?;
        server.stop();
        server.has_small_disk = true;
        server.resume();
        let place = server.dir.path().join("small/space");
        server.run(&format!("CREATE TABLESPACE small LOCATION '{}'", place.display()));
        server.run("CREATE DATABASE jobs TABLESPACE small");
        Some(server)
    }

    /// Starts a server whose clock is ahead of the machine's by this number of seconds. The library
    /// that shifts it is built with the C compiler that links Rust programs.
    pub fn start_ahead(seconds: i64) -> Option<Self> {
        let mut server = Self::start(&[])?;
        server.stop();
        let (source, library) = (server.dir.path().join("clock.c"), server.clock());
        fs::write(&source, CLOCK).expect("a file can be written");
        let mut built = Command::new("cc");
        built.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let built = built.output().expect("cc can be run");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        server.has_clock = true;
        server.step_clock(seconds);
        server.resume();
        Some(server)
    }

    /// Has the clock of a server that was started ahead go ahead by this much from now on.
    pub fn step_clock(&self, seconds: i64) {
        let (next, file) = (self.dir.path().join("ahead.next"), self.dir.path().join("ahead"));
        fs::write(&next, seconds.to_string()).expect("a file can be written");
        fs::rename(next, file).expect("it is replaced at once");
    }

    fn clock(&self) -> PathBuf {
        self.dir.path().join("clock.so")
    }

    /// Takes all space of the small disk, by a program that the server runs.
    pub fn fill_small_disk(&self) {
        let file = self.dir.path().join("small/filler");
        let program = format!("dd if=/dev/zero of={} bs=4k || true", file.display());
        self.run(&format!("COPY (SELECT 1) TO PROGRAM '{program}'"));
    }

    /// Gives that space back.
    pub fn clear_small_disk(&self) {
        let file = self.dir.path().join("small/filler");
        self.run(&format!("COPY (SELECT 1) TO PROGRAM 'rm {}'", file.display()));
    }

    /// Starts a standby that follows this server, and has commits wait for it.
    #[must_use]
    pub fn standby(&self) -> Self {
        let (dir, port, (uid, gid)) = (scratch(), free_port(), owner());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("it is ours");
        chown(dir.path(), Some(uid), Some(gid)).expect("a directory can be given away");
        let mut copied = Command::new("pg_basebackup");
        copied.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-U", USER, "-h"]);
        copied.arg(self.dir.path()).args(["-p", &self.port.to_string(), "-D"]);
        copied.arg(dir.path().join("data")).uid(uid).gid(gid).current_dir(dir.path());
        let copied = copied.output().expect("pg_basebackup can be run");
        let said = String::from_utf8_lossy(&copied.stderr);
        assert!(copied.status.success(), "pg_basebackup failed: {said}");
        let conf = dir.path().join("data/postgresql.auto.conf");
        let text = fs::read_to_string(&conf).expect("it was copied");
        fs::write(&conf, text + &address(dir.path(), port)).expect("it can be written");
        let binaries = self.binaries.clone();
        let standby = Self {
            dir,
            port,
            binaries,
            has_small_disk: false,
            has_clock: false,
            running: Mutex::new(None),
        };
        standby.resume();
        self.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.run("SELECT pg_reload_conf()");
        let follows = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        while self.run(follows) == "0" {}
        standby
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
        let small = format!(
            "mkdir -p \"$2/small\" && mount -t tmpfs -o size=48m,mode=777 tmpfs \"$2/small\" && \
             mkdir \"$2/small/space\" && \
             exec unshare --user --map-user={uid} --map-group={gid} sh -c \"$0\" \"$@\""
        );
        let mut shell = Command::new(if self.has_small_disk { "unshare" } else { "sh" });
        if self.has_small_disk {
            shell.args(["--user", "--map-root-user", "--mount", "sh", "-c", &small, script]);
        } else {
            shell.args(["-c", script]);
        }
        shell.arg(&self.binaries).arg(self.dir.path());
        if self.has_clock {
            shell.env("LD_PRELOAD", self.clock()).env("AHEAD", self.dir.path().join("ahead"));
        }
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

    /// Starts it again as a server that takes no writes.
    pub fn resume_read_only(&self) {
        let conf = self.dir.path().join("data/postgresql.auto.conf");
        let mut conf = File::options().append(true).open(conf).expect("it is there");
        let setting = b"default_transaction_read_only = on\n";
        conf.write_all(setting).expect("the settings can be written");
        self.resume();
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the server at once, as a crash would, and waits for its end.
    pub fn stop(&self) {
        if let Some(mut running) = self.running().take() {
            let sent = running.alive.as_mut().map(|pipe| pipe.write_all(b"stop\n"));
            drop((sent, running.alive.take()));
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
    pub fn hold_snapshot(&self) -> Session {
        let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'held';\n";
        self.hold(USER, sql).expect("there is a free connection")
    }

    /// Opens a transaction that has run this, and holds its locks until it is dropped.
    pub fn hold_locks(&self, sql: &str) -> Session {
        let sql = format!("BEGIN; {sql}; SELECT 'held';\n");
        self.hold(USER, &sql).expect("there is a free connection")
    }

    /// Takes locks until the server has no room for any more, and holds them until it is dropped.
    pub fn hold_all_locks(&self) -> Session {
        let sql = "DO $$ BEGIN FOR n IN 1..1000000 LOOP PERFORM pg_advisory_lock(77, n); END LOOP; \
                   EXCEPTION WHEN out_of_memory THEN NULL; END $$; SELECT 'held';\n";
        self.hold(USER, sql).expect("there is a free connection")
    }

    /// Holds a connection of this user until it is dropped; `None` if there is none.
    pub fn hold_connection(&self, user: &str) -> Option<Session> {
        self.hold(user, "SELECT 'held';\n")
    }

    fn hold(&self, user: &str, sql: &str) -> Option<Session> {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-At", "-U", user, "-d", "postgres", "-h"]);
        psql.arg(self.dir.path()).args(["-p", &self.port.to_string()]);
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut psql = psql.spawn().expect("it runs");
        let input = psql.stdin.take().expect("its input is piped");
        let out = psql.stdout.take().expect("its output is piped");
        let mut session = Session { psql, input: Some(input) };
        // One that has got no connection reads nothing.
        let _ = session.input.as_mut().map(|input| input.write_all(sql.as_bytes()));
        let mut said = String::new();
        BufReader::new(out).read_line(&mut said).expect("it answers, or ends");
        (said == "held\n").then_some(session)
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

    /// The name of a schema that no other test uses.
    pub fn new_schema(&self) -> String {
        format!("t{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
    }
}

/// A connection of another program.
#[derive(Debug)]
pub struct Session {
    psql: Child,
    input: Option<ChildStdin>,
}

impl Drop for Session {
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

fn free_port() -> u16 {
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr());
    port.expect("there is a free port").port()
}

/// The settings of where a server listens.
fn address(dir: &Path, port: u16) -> String {
    format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n",
        dir.display()
    )
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
    let ci = std::env::var("CI").is_ok_and(|value| !value.is_empty());
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
