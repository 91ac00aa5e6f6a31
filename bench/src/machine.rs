//! Machine, versions and settings of the measurement. Values that are not found are left out.

use std::path::Path;
use std::process::Command;

/// Names and values, for the head of the report.
pub(crate) fn about(dir: &Path) -> Vec<(String, String)> {
    let lock = read("Cargo.lock");
    let version = |name: &str| locked(&lock, name);
    let all = [
        ("Processor", processor(&read("/proc/cpuinfo"))),
        ("Cores", std::thread::available_parallelism().ok().map(|cores| cores.to_string())),
        ("Memory", memory(&read("/proc/meminfo"))),
        ("Kernel", Some(read("/proc/sys/kernel/osrelease").trim().to_owned())),
        ("File system of the stores", file_system(dir)),
        ("Windlass", said("git", &["describe", "--always", "--dirty"])),
        ("Rust", said("rustc", &["--version"])),
        ("SQLite", Some(format!("{}, WAL, synchronous=FULL", rusqlite::version()))),
        (
            "redb",
            version("redb").map(|version| format!("{version}, two-phase commits, each synced")),
        ),
        ("tokio", version("tokio")),
        ("Load when it ended", Some(load(&read("/proc/loadavg")))),
    ];
    let found = all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    found.filter(|(_, value)| !value.is_empty()).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn processor(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory(text: &str) -> Option<String> {
    let kib: u64 = text.lines().next()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(format!("{} MiB", kib / 1_024))
}

fn load(text: &str) -> String {
    text.split_whitespace().take(3).collect::<Vec<&str>>().join(", ")
}

/// The file system of the longest mount point above a folder.
fn file_system(dir: &Path) -> Option<String> {
    let folder = dir.canonicalize().ok()?;
    let mounts = read("/proc/mounts");
    let words = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = words.filter(|(point, _)| folder.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_owned())
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The version that the lock file holds of a crate.
fn locked(lock: &str, name: &str) -> Option<String> {
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(rest.split('"').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_the_processor_are_read_from_text() {
        let lock = "[[package]]\nname = \"redb\"\nversion = \"4.4.0\"\n";
        assert_eq!(locked(lock, "redb").as_deref(), Some("4.4.0"));
        assert_eq!(locked(lock, "re"), None);
        assert_eq!(processor("a: b\nmodel name\t: Some CPU\n").as_deref(), Some("Some CPU"));
        assert_eq!(memory("MemTotal:       2048 kB\n").as_deref(), Some("2 MiB"));
    }
}
