//! Mutants: bugs that are patched into a copy of the workspace, one at a time, to test that the
//! simulation finds each. The production sources are not changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::patch;

/// A bug, as a patch.
#[derive(Debug)]
pub struct Mutant {
    /// `M1`, `M2` and so on.
    pub name: &'static str,
    /// The bug, in a few words.
    pub what: &'static str,
    /// A unified diff against the workspace.
    pub patch: &'static str,
}

macro_rules! mutants {
    ($($name:literal, $file:literal, $what:literal;)+) => {
        /// In the order of their names.
        pub const MUTANTS: &[Mutant] = &[
            $(Mutant {
                name: $name,
                what: $what,
                patch: include_str!(concat!("../mutants/", $file, ".patch")),
            },)+
        ];
    };
}

mutants! {
    "M1", "m01", "ack before commit";
    "M2", "m02", "settle without epoch check";
    "M3", "m03", "epoch restarts after a crash";
    "M4", "m04", "claim as read then write in two transactions";
    "M5", "m05", "reaper trusts a stepped wall clock";
    "M6", "m06", "attempts counted at completion";
    "M7", "m07", "exhausted job neither claimable nor reapable";
    "M8", "m08", "reap and settle both apply";
    "M9", "m09", "heartbeat goes on after the handler returned";
    "M10", "m10", "wake lost";
    "M11", "m11", "reaper pages restart at the head";
    "M12", "m12", "backoff overflows";
    "M13", "m13", "unknown outcome retried as new";
    "M14", "m14", "job and index written in two transactions";
    "M15", "m15", "claims after the drain latch";
    "M16", "m16", "fsync error swallowed";
    "M17", "m17", "duplicate answered from an uncommitted row";
    "M18", "m18", "dispatcher exits on the first store error";
    "M19", "m19", "retention removes a live job";
    "M20", "m20", "counters outside the transaction";
    "M21", "m21", "claim without holding the candidate";
    "M22", "m22", "key read without a lock";
    "M23", "m23", "write without its precondition";
    "M24", "m24", "limit checked on a count read before the lock";
    "M25", "m25", "was_committed answered while the old transaction lives";
    "M26", "m26", "store clock read before the locks";
    "M27", "m27", "skipped rows never looked at again";
    "M28", "m28", "lost leases not reported";
    "M29", "m29", "a start not charged to its rate";
    "M30", "m30", "the limit of a kind from before the batch";
}

/// Seeds after which a mutant counts as not found.
pub const MOST_SEEDS: u64 = 2_000;

/// Seeds that must pass without any mutant.
const CONTROL_SEEDS: u64 = 500;

/// Number of seeds until a mutant was found, and the rule that found it; `None` if none did.
pub type Found = Option<(u64, String)>;

/// A copy of the workspace in which mutants are built and run, one at a time.
#[derive(Debug)]
pub struct Workshop {
    copy: PathBuf,
    target: PathBuf,
    root: PathBuf,
}

/// Names of files and folders that the copy does not need.
const LEFT_OUT: [&str; 3] = ["target", ".git", "mutants"];

impl Workshop {
    /// Copies the workspace at `root` into a folder of its target folder, so that builds are
    /// reused by the next run.
    pub fn new(root: &Path) -> Result<Self, String> {
        let base = root.join("target").join("mutants");
        let (copy, target) = (base.join("copy"), base.join("target"));
        let fail = |error: io::Error| format!("the workspace cannot be copied: {error}");
        copy_newer(root, &copy).map_err(fail)?;
        // The table of mutants is compiled into the simulation; its patches must be there.
        copy_newer(&root.join("sim/mutants"), &copy.join("sim/mutants")).map_err(fail)?;
        Ok(Self { copy, target, root: root.to_owned() })
    }

    /// Builds the copy without any mutant and runs seeds from each of these first ones. If one
    /// fails, then finding a mutant proves nothing.
    pub fn control(&self, mut starts: impl Iterator<Item = u64>) -> Result<(), String> {
        self.build()?;
        starts.try_for_each(|first| match self.run(first, CONTROL_SEEDS)? {
            None => Ok(()),
            Some((seeds, rule)) => {
                Err(format!("without any mutant, seed {} violates {rule}", first + seeds - 1))
            }
        })
    }

    /// Builds a mutant, runs seeds from each of these first ones until one fails, and reverts it.
    pub fn try_out(
        &self,
        mutant: &Mutant,
        starts: impl Iterator<Item = u64>,
    ) -> Result<Vec<Found>, String> {
        let files = patch::applied(mutant.patch, &self.root);
        let files = files.map_err(|error| format!("{}: {error}", mutant.name))?;
        for (path, text) in &files {
            write(&self.copy.join(path), text)?;
        }
        let hunt = || starts.map(|first| self.run(first, MOST_SEEDS)).collect();
        let found = self.build().and_then(|()| hunt());
        for (path, _) in &files {
            let text = fs::read_to_string(self.root.join(path));
            write(&self.copy.join(path), &text.map_err(|error| error.to_string())?)?;
        }
        found.map_err(|error| format!("{}: {error}", mutant.name))
    }

    fn build(&self) -> Result<(), String> {
        let cargo = option_env!("CARGO").unwrap_or("cargo");
        let status = Command::new(cargo)
            .args(["build", "--release", "--quiet", "--package", "windlass-sim"])
            .args(["--no-default-features", "--offline"])
            .arg("--target-dir")
            .arg(&self.target)
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "2")
            .env("CARGO_INCREMENTAL", "1")
            .env("RUSTFLAGS", "-Awarnings")
            .current_dir(&self.copy)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("cargo cannot be started: {error}"))?;
        if status.success() { Ok(()) } else { Err("the mutant does not build".into()) }
    }

    /// Runs seeds until one fails; returns their number and the violated rule.
    fn run(&self, first: u64, seeds: u64) -> Result<Found, String> {
        let output = Command::new(self.target.join("release").join("windlass-sim"))
            .args(["hunt", "--seeds", &seeds.to_string(), "--first", &first.to_string()])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("the mutant cannot be run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().next().unwrap_or("");
        match line.split_once(' ') {
            Some(("found", rest)) => {
                let (seeds, rule) = rest.split_once(' ').ok_or("an answer without a rule")?;
                let seeds = seeds.parse().map_err(|_| "an answer without a number")?;
                Ok(Some((seeds, rule.to_owned())))
            }
            _ if line == "none" => Ok(None),
            _ => Err(format!("the mutant ended without an answer: {}", output.status)),
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Copies a folder, without files that are equal already, so that cargo does not rebuild them.
fn copy_newer(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if LEFT_OUT.iter().any(|left| name == *left) {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        if kind.is_dir() {
            copy_newer(&from, &to)?;
        } else if kind.is_file() {
            let bytes = fs::read(&from)?;
            if fs::read(&to).ok().as_deref() != Some(&bytes) {
                fs::write(&to, bytes)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_still_fits_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for mutant in MUTANTS {
            let applied = patch::applied(mutant.patch, &root);
            assert!(applied.is_ok(), "{} {}: {applied:?}", mutant.name, mutant.what);
        }
    }

    #[test]
    fn there_are_thirty_mutants_each_with_a_patch_of_its_own() {
        let mut patches: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.patch).collect();
        patches.sort_unstable();
        patches.dedup();
        assert_eq!(patches.len(), 30);
    }
}
