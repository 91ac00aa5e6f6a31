//! Other processes on the same store and the same machine: those that are gone are known to be
//! dead, and what they ran is run again at once. What Linux tells in /proc decides; elsewhere
//! nothing is known.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use windlass_core::WorkerId;
use windlass_core::store::{Instance, Worker, WorkerKind};
use windlass_runtime_tokio::Queue;

use crate::store::host_name;

/// Which process this is: by the start of the machine, the namespaces of process ids and of clocks,
/// and when it started. `None` if /proc does not tell, or is that of another namespace.
pub(crate) fn own_instance() -> Option<Instance> {
    let link = |path| Some(fs::read_link(path).ok()?.to_str()?.to_owned());
    let pid = std::process::id();
    if link("/proc/self")? != pid.to_string() {
        return None;
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let pids = link("/proc/self/ns/pid")?;
    // Kernels without this namespace have one clock.
    let clocks = link("/proc/self/ns/time").unwrap_or_default();
    Instance::new(&format!("{}/{pids}/{clocks}", boot.trim()), stat(pid)?.started)
}

/// What /proc says of a process.
struct Stat {
    state: char,
    /// When it started, in ticks since the start of the machine.
    started: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name of the program stands in parentheses, and may hold any character.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some(Stat { state, started: fields.nth(18)?.parse().ok()? })
}

/// Whether the process with this id and start time runs. True if that is unknown: /proc may hide
/// the processes of other users. A zombie does not run.
fn lives(pid: u32, started: u64) -> bool {
    match stat(pid) {
        Some(stat) => stat.started == started && !matches!(stat.state, 'Z' | 'X'),
        None => i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH)),
    }
}

/// Takes back what processes of this machine ran that are gone.
pub(crate) async fn end_gone(queue: Queue) {
    let new = Worker::new(queue.worker_id().clone(), &host_name(), WorkerKind::Local);
    let own = Worker { instance: own_instance(), ..new };
    let rows = match queue.workers().await {
        Ok(rows) => rows,
        Err(error) => {
            tracing::warn!(%error, "it is not known which processes were here before");
            return;
        }
    };
    for row in rows.into_iter().filter(|row| row.worker.has_died(&own, lives)) {
        end_dead(&queue, row.worker.id).await;
    }
}

/// Takes back what a worker ran that is known to be dead.
pub(crate) async fn end_dead(queue: &Queue, dead: WorkerId) {
    match queue.end_worker(dead.clone()).await {
        Ok(()) => tracing::warn!(worker = %dead, "this worker died: its jobs are run again"),
        Err(error) => {
            tracing::warn!(worker = %dead, %error, "its jobs wait until their leases run out");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_process_is_read_behind_any_name() {
        let rest = "1 1 1 0 -1 4194304 98 0 0 0 0 0 0 0 20 0 1 0 1275298 3133440 386";
        for name in ["cat", "a b", ") R 1 1", ""] {
            let stat = parse_stat(&format!("4994 ({name}) S {rest}")).unwrap();
            assert_eq!((stat.state, stat.started), ('S', 1_275_298), "{name:?}");
        }
        for bad in ["", "4994", "4994 (cat)", "4994 (cat) S 1 1", "4994 (cat S"] {
            assert!(parse_stat(bad).is_none(), "{bad:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_lives_until_it_is_over_also_while_nobody_has_reaped_it() {
        let own = own_instance().unwrap();
        let pid = std::process::id();
        assert!(lives(pid, own.started()));
        assert!(!lives(pid, own.started() + 1), "the id was another process's before");
        let mut child = std::process::Command::new("cat");
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let started = stat(child.id()).unwrap().started;
        assert!(lives(child.id(), started));
        drop(child.stdin.take());
        let id = rustix::process::WaitId::Pid(Pid::from_child(&child));
        let options =
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(id, options).unwrap();
        assert!(!lives(child.id(), started), "it is a zombie");
        child.wait().unwrap();
        assert!(!lives(child.id(), started));
        assert!(!lives(0, 0) && !lives(u32::MAX, 0), "no such ids");
    }
}
