//! A list of commands, run in every mode: directly on each store, and over HTTP.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use windlass_tests::postgres_server::PostgresServer;

use crate::common::{Place, Server};
use crate::redact::redacted;

/// How a command accesses the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Sqlite,
    Redb,
    Postgres,
    Server,
}

/// The modes that can be tested on this machine.
fn modes() -> Vec<Mode> {
    let postgres = PostgresServer::shared().map(|_| Mode::Postgres);
    [Mode::Sqlite, Mode::Redb, Mode::Server].into_iter().chain(postgres).collect()
}

/// A store with the jobs that a test begins with.
pub(crate) struct World {
    pub(crate) place: Place,
    pub(crate) server: Option<Server>,
    output: String,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl World {
    /// A store that a server has filled. In the direct modes the server has been stopped.
    pub(crate) fn new(mode: Mode, fill: fn(&Server)) -> Self {
        let place = Place::new(match mode {
            Mode::Sqlite | Mode::Server => "sqlite",
            Mode::Redb => "redb",
            Mode::Postgres => "postgres",
        });
        let server = place.start(&[]);
        fill(&server);
        let output = String::new();
        if mode == Mode::Server {
            return Self { place, server: Some(server), output };
        }
        server.signal("-TERM");
        let (status, said) = server.end();
        assert!(status.success(), "{said}");
        Self { place, server: None, output }
    }

    /// The binary, on this store and with these arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = windlass(&self.place);
        match &self.server {
            Some(server) => command.args(["--server", &format!("http://{}", server.address)]),
            None => command.args(["--store", &self.place.store]),
        };
        command.args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    /// The same, with this on standard input.
    pub(crate) fn run_with(&self, args: &[&str], input: &str) -> Ran {
        ran(self.command(args), input)
    }

    /// Runs a command and records its output.
    pub(crate) fn tell(&mut self, args: &[&str]) -> Ran {
        self.tell_with(args, "")
    }

    pub(crate) fn tell_with(&mut self, args: &[&str], input: &str) -> Ran {
        let ran = self.run_with(args, input);
        let words: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
        let _ = write!(self.output, "$ windlass {}\n{}", words.join(" "), ran.out);
        for line in ran.err.lines() {
            let _ = writeln!(self.output, "! {line}");
        }
        if ran.code != 0 {
            let _ = writeln!(self.output, "[exit {}]", ran.code);
        }
        ran
    }
}

/// Runs the commands in every mode; all transcripts must be equal. Returns the transcript.
pub(crate) fn in_every_mode(fill: fn(&Server), story: fn(&mut World)) -> String {
    in_modes(&modes(), fill, story)
}

/// The same for a test whose commands are refused or find a duplicate before others print new ids:
/// PostgreSQL skips the ids that were not used.
pub(crate) fn with_every_id(fill: fn(&Server), story: fn(&mut World)) -> String {
    in_modes(&[Mode::Sqlite, Mode::Redb, Mode::Server], fill, story)
}

fn in_modes(modes: &[Mode], fill: fn(&Server), story: fn(&mut World)) -> String {
    let tell = |mode| {
        let mut world = World::new(mode, fill);
        story(&mut world);
        redacted(&world.output)
    };
    let first = tell(Mode::Sqlite);
    for mode in modes.iter().skip(1) {
        assert_eq!(tell(*mode), first, "{mode:?} (left) differs from sqlite (right)");
    }
    first
}

/// The binary, without the variables of the environment that it reads.
pub(crate) fn windlass(place: &Place) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.current_dir(place.dir.path());
    for name in ["WINDLASS_TOKEN", "WINDLASS_STORE", "WINDLASS_SERVER", "WINDLASS_CA"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn ran(mut command: Command, input: &str) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.:/".contains(c);
    if arg.chars().all(plain) { arg.into() } else { format!("'{arg}'") }
}
