//! Finding and ending everything that descends from a process.
//!
//! A process can leave its group and its session, but not its ancestors: orphans are reparented to
//! the nearest subreaper. So a subreaper that has no child left has no descendant left. Linux only;
//! elsewhere a command's process group is all that is ended.

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

/// Makes this process a subreaper: descendants that lose their parents become its children.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        tracing::warn!(%error, "cannot become a subreaper: orphans of commands may survive");
    }
}

/// Collects children that have ended; returns whether there are others.
pub(super) fn reap(mut ended: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Kills everything that descends from this process.
pub(super) fn kill_descendants() {
    let me = rustix::process::getpid();
    for pid in descendants(me, &relations()) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Kills the children of this process that are not known, with their descendants: those of a
/// supervisor that was killed. Collects those that have ended, and returns the number of children.
/// It is called until that is 0: they may have started others meanwhile.
pub(super) fn kill_orphans(known: &dyn Fn(Pid) -> bool) -> usize {
    let me = rustix::process::getpid();
    let all = relations();
    let children = all.iter().filter(|(_, parent)| *parent == me).map(|(pid, _)| *pid);
    let orphans: Vec<Pid> = children.filter(|pid| !known(*pid)).collect();
    for stray in &orphans {
        for pid in descendants(*stray, &all) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = kill_process(*stray, Signal::KILL);
        let _ = waitpid(Some(*stray), WaitOptions::NOHANG);
    }
    orphans.len()
}

/// The descendants of a process, without itself.
fn descendants(root: Pid, all: &[(Pid, Pid)]) -> Vec<Pid> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

/// Every process of the system with its parent.
#[cfg(target_os = "linux")]
fn relations() -> Vec<(Pid, Pid)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let of = |entry: std::fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read(entry.path().join("stat")).ok()?;
        Some((Pid::from_raw(pid)?, parent(&stat)?))
    };
    entries.flatten().filter_map(of).collect()
}

#[cfg(not(target_os = "linux"))]
fn relations() -> Vec<(Pid, Pid)> {
    Vec::new()
}

/// The parent in a line of the form `pid (name) state parent ...`; the name may hold anything.
#[cfg(target_os = "linux")]
fn parent(stat: &[u8]) -> Option<Pid> {
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    let mut words = str::from_utf8(&stat[behind + 1..]).ok()?.split_ascii_whitespace();
    words.next()?;
    Pid::from_raw(words.next()?.parse().ok()?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_whatever_the_name_of_the_process() {
        for name in ["sh", "a b", ") R 7 (", "x)"] {
            let stat = format!("12 ({name}) S 34 12 12 0 -1");
            assert_eq!(parent(stat.as_bytes()), Pid::from_raw(34), "{name}");
        }
        assert_eq!(parent(b"12 (sh) S 0 12"), None);
        assert_eq!(parent(b"nonsense"), None);
    }

    #[test]
    fn all_that_descend_are_found_and_no_others() {
        let pid = |n| Pid::from_raw(n).unwrap();
        let all: Vec<(Pid, Pid)> =
            [(5, 4), (2, 1), (4, 2), (3, 1), (6, 3)].map(|(n, of)| (pid(n), pid(of))).into();
        assert_eq!(descendants(pid(2), &all), [pid(4), pid(5)]);
        assert_eq!(descendants(pid(6), &all), []);
    }

    #[test]
    fn this_process_has_a_parent() {
        let me = rustix::process::getpid();
        let parent = relations().into_iter().find(|(pid, _)| *pid == me).map(|(_, of)| of);
        assert_eq!(parent, rustix::process::getppid());
    }
}
