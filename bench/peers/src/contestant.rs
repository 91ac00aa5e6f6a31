//! Who takes part, where each lives, and how one is run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use windlass_peers_plan::Outcome;

use crate::servers::Redis;

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

/// Where a program lives.
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
}

const fn one(name: &'static str, setting: &'static str, home: Home) -> Contestant {
    Contestant { name, setting, home }
}

/// Everybody, in the order of the table.
pub(crate) const CONTESTANTS: [Contestant; 14] = [
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
            Home::Crate(folder) => build_crate(folder, build),
            Home::Bullmq => {
                installed("redis-server", "--version", "apt install redis-server")?;
                installed("node", "--version", "apt install nodejs npm")?;
                packages(build)
            }
        }
    }

    /// Runs one phase in a fresh folder; what it says.
    pub(crate) fn run(&self, phase: &str, dir: &Path, jobs: usize, seconds: u64) -> Outcome<Value> {
        let folder = tempfile::TempDir::new_in(dir)?;
        let folder_path = folder.path().canonicalize()?;
        let mut redis = None;
        let mut command = match self.home {
            Home::Here | Home::Beanstalkd => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("--");
                command
            }
            Home::Crate(crate_folder) => Command::new(program(crate_folder)),
            Home::Bullmq => {
                let server = redis.insert(Redis::start(&folder_path, self.setting == "full")?);
                let mut command = Command::new("node");
                command.arg(here().join("bullmq/run.mjs"));
                command.env("REDIS_PORT", server.port.to_string());
                command
            }
        };
        let words = [self.name, self.setting, phase];
        command.args(words).arg(&folder_path).args([jobs.to_string(), seconds.to_string()]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("it ended with {}", output.status).into());
        }
        let text = String::from_utf8(output.stdout)?;
        let line = text.lines().rfind(|line| line.starts_with('{')).ok_or("it said nothing")?;
        Ok(serde_json::from_str(line)?)
    }
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

fn packages(build: bool) -> Outcome<()> {
    let folder = here().join("bullmq");
    if build && !folder.join("node_modules").exists() {
        let status = Command::new("npm")
            .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .status();
        let status =
            status.map_err(|error| format!("npm: {error}; install it: apt install npm"))?;
        if !status.success() {
            return Err("npm install failed in bench/peers/bullmq".into());
        }
    }
    if folder.join("node_modules").exists() {
        Ok(())
    } else {
        Err("its packages are missing: run npm install in bench/peers/bullmq".into())
    }
}
