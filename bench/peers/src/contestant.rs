//! The contestants: where each is built, and how one is run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use windlass_peers_plan::{Outcome, URL};

use crate::servers::{Database, Postgres, Redis};

/// One queue in one setting.
#[derive(Debug)]
pub(crate) struct Contestant {
    /// The queue.
    pub(crate) name: &'static str,
    /// How it is set up.
    pub(crate) setting: &'static str,
    /// Where the program is that runs it.
    pub(crate) home: Home,
}

/// The program of a contestant, and the server it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Home {
    /// In this program.
    Here,
    /// In this program, with a server that has to be installed.
    Beanstalkd,
    /// In a crate of its own, in this folder.
    Crate(&'static str),
    /// A script for Node, with a Redis beside it.
    Bullmq,
    /// In a crate of its own, in this folder, on PostgreSQL.
    PostgresCrate(&'static str),
    /// A script for Node, on PostgreSQL.
    PostgresNode,
    /// A script for Python, on PostgreSQL.
    PostgresPython,
}

impl Home {
    /// Whether it is given a database on PostgreSQL.
    pub(crate) fn is_on_postgres(self) -> bool {
        matches!(self, Self::PostgresCrate(_) | Self::PostgresNode | Self::PostgresPython)
    }
}

const fn one(name: &'static str, setting: &'static str, home: Home) -> Contestant {
    Contestant { name, setting, home }
}

/// All contestants, in the order of the table.
pub(crate) const CONTESTANTS: [Contestant; 24] = [
    one("windlass", "default", Home::Here),
    one("effectum", "default", Home::Crate("effectum")),
    one("effectum", "wal", Home::Crate("effectum")),
    one("apalis", "default", Home::Crate("sqlx")),
    one("apalis", "full", Home::Crate("sqlx")),
    one("apalis", "tuned", Home::Crate("sqlx")),
    one("river", "default", Home::Crate("sqlx")),
    one("river", "tuned", Home::Crate("sqlx")),
    one("honker", "default", Home::Crate("honker")),
    one("honker", "full", Home::Crate("honker")),
    one("beanstalkd", "default", Home::Beanstalkd),
    one("beanstalkd", "full", Home::Beanstalkd),
    one("bullmq", "default", Home::Bullmq),
    one("bullmq", "full", Home::Bullmq),
    one("windlass", "postgres", Home::PostgresCrate("postgres")),
    one("river", "postgres", Home::PostgresCrate("postgres")),
    one("graphile_worker", "postgres", Home::PostgresCrate("postgres")),
    one("apalis", "postgres", Home::PostgresCrate("postgres")),
    one("awa", "postgres", Home::PostgresCrate("postgres-sqlx08")),
    one("underway", "postgres", Home::PostgresCrate("postgres-sqlx08")),
    one("pgmq", "postgres", Home::PostgresCrate("postgres-sqlx08")),
    one("graphile-worker", "postgres", Home::PostgresNode),
    one("pg-boss", "postgres", Home::PostgresNode),
    one("procrastinate", "postgres", Home::PostgresPython),
];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where all crates of the comparison are built to.
fn built() -> PathBuf {
    here().join("target")
}

impl Contestant {
    /// Builds or looks for what is needed; says how to install what is missing.
    pub(crate) fn prepare(&self, build: bool) -> Outcome<()> {
        match self.home {
            Home::Here => Ok(()),
            Home::Beanstalkd => installed("beanstalkd", "-v", "apt install beanstalkd"),
            Home::Crate(folder) | Home::PostgresCrate(folder) => build_crate(folder, build),
            Home::PostgresNode => {
                installed("node", "--version", "apt install nodejs npm")?;
                packages("postgres-node", build)
            }
            Home::PostgresPython => environment(build),
            Home::Bullmq => {
                installed("redis-server", "--version", "apt install redis-server")?;
                installed("node", "--version", "apt install nodejs npm")?;
                packages("bullmq", build)
            }
        }
    }

    /// Runs one phase in a fresh folder; what it says.
    pub(crate) fn run(
        &self,
        phase: &str,
        dir: &Path,
        server: Option<&Postgres>,
        jobs: usize,
        seconds: u64,
    ) -> Outcome<Value> {
        let database = server.map(Postgres::database);
        let folder = tempfile::TempDir::new_in(dir)?;
        let folder_path = folder.path().canonicalize()?;
        let mut redis = None;
        let mut command = self.command(phase, &folder_path, (jobs, seconds), database.as_ref())?;
        if self.home == Home::Bullmq {
            let server = redis.insert(Redis::start(&folder_path, self.setting == "full")?);
            command.env("REDIS_PORT", server.port.to_string());
        }
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("it ended with {}", output.status).into());
        }
        let text = String::from_utf8(output.stdout)?;
        let line = text.lines().rfind(|line| line.starts_with('{')).ok_or("it said nothing")?;
        Ok(serde_json::from_str(line)?)
    }
}

impl Contestant {
    /// How a phase is called.
    pub(crate) fn command(
        &self,
        phase: &str,
        folder: &Path,
        (jobs, seconds): (usize, u64),
        database: Option<&Database<'_>>,
    ) -> Outcome<Command> {
        let mut command = match self.home {
            Home::Here | Home::Beanstalkd => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("--");
                command
            }
            Home::Crate(crate_folder) | Home::PostgresCrate(crate_folder) => {
                Command::new(program(crate_folder))
            }
            Home::Bullmq => script("node", "bullmq/run.mjs"),
            Home::PostgresNode => script("node", "postgres-node/run.mjs"),
            Home::PostgresPython => {
                let mut command = Command::new(python());
                command.arg(here().join("postgres-python/run.py"));
                command
            }
        };
        command.args([self.name, self.setting, phase]).arg(folder);
        command.args([jobs.to_string(), seconds.to_string()]);
        if let Some(database) = database {
            command.env(URL, &database.url);
        }
        Ok(command)
    }
}

fn script(interpreter: &str, path: &str) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(here().join(path));
    command
}

/// The interpreter with the packages of `postgres-python/requirements.txt`.
fn python() -> PathBuf {
    built().join("python/bin/python")
}

/// Makes an environment of its own for Python and installs packages into it.
fn environment(build: bool) -> Outcome<()> {
    if build && !python().exists() {
        let folder = built().join("python");
        let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
        let made = made.map_err(|error| format!("python3: {error}; apt install python3-venv"))?;
        let wanted = here().join("postgres-python/requirements.txt");
        let mut pip = Command::new(python());
        pip.args(["-m", "pip", "install", "--quiet", "-r"]).arg(wanted);
        if !made.success() || !pip.stdout(Stdio::null()).status()?.success() {
            let _ = std::fs::remove_dir_all(&folder);
            return Err("its packages could not be installed with pip".into());
        }
    }
    if python().exists() { Ok(()) } else { Err("it is not built: leave out --no-build".into()) }
}

fn program(folder: &str) -> PathBuf {
    built().join("release").join(format!("windlass-peers-{folder}"))
}

fn installed(program: &str, version: &str, how: &str) -> Outcome<()> {
    let quiet = Command::new(program).arg(version).stdout(Stdio::null()).status();
    quiet.map(drop).map_err(|error| format!("{program}: {error}; install it: {how}").into())
}

fn build_crate(folder: &str, build: bool) -> Outcome<()> {
    if build {
        let manifest = here().join(folder).join("Cargo.toml");
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
        let status = cargo.arg("--target-dir").arg(built()).status()?;
        if !status.success() {
            return Err("it could not be built".into());
        }
    }
    let program = program(folder);
    if program.exists() { Ok(()) } else { Err("it is not built: leave out --no-build".into()) }
}

fn packages(folder: &str, build: bool) -> Outcome<()> {
    let name = folder;
    let folder = here().join(folder);
    if build && !folder.join("node_modules").exists() {
        let status = Command::new("npm")
            .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .status();
        let status =
            status.map_err(|error| format!("npm: {error}; install it: apt install npm"))?;
        if !status.success() {
            return Err(format!("npm install failed in bench/peers/{name}").into());
        }
    }
    if folder.join("node_modules").exists() {
        Ok(())
    } else {
        Err(format!("its packages are missing: run npm install in bench/peers/{name}").into())
    }
}
