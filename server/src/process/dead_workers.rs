//! Finds worker processes of this host that have exited and requeues their jobs (Linux, /proc).
//! Elsewhere only a supervisor knows that its worker has exited.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use windlass_core::limits::PAGE_ROWS;
use windlass_core::store::{Filter, Instance, Reader, StoreError, Worker, WorkerKind};
use windlass_core::{Job, View, WorkerId};
use windlass_runtime_tokio::Queue;

use crate::cli::client::Failure;
use crate::settings::Given;
use crate::store::{self, Purpose, StoreUrl, host_name};

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

/// Tells of workers on a store whether they are known to be dead: processes of this machine that
/// are gone.
pub(crate) fn dead_here() -> impl Fn(&Worker) -> bool {
    let id = WorkerId::new("observer").expect("it is a name");
    let own =
        Worker { instance: own_instance(), ..Worker::new(id, &host_name(), WorkerKind::Local) };
    move |worker| worker.has_died(&own, lives)
}

/// Takes back what processes of this machine ran that are gone.
pub(crate) async fn end_gone(queue: Queue) {
    let new = Worker::new(queue.worker_id().clone(), &host_name(), WorkerKind::Local);
    let own = Worker { instance: own_instance(), ..new };
    let rows = match queue.workers().await {
        Ok(rows) => rows,
        Err(error) => {
            let what = "cannot list the processes that used this store before; the jobs of dead \
                        ones wait for their leases to expire";
            tracing::warn!(%error, "{what}");
            return;
        }
    };
    for row in rows.into_iter().filter(|row| row.worker.has_died(&own, lives)) {
        end_dead(&queue, row.worker.id).await;
    }
}

/// Ends the leases of a worker that is known to be dead. Returns whether they are ended.
pub(crate) async fn end_dead(queue: &Queue, dead: WorkerId) -> bool {
    match queue.end_worker(dead.clone()).await {
        Ok(()) => {
            tracing::warn!(worker = %dead, "a worker process died; its jobs are requeued");
            true
        }
        Err(error) => {
            let what =
                "cannot requeue the jobs of a dead worker; they wait for their leases to expire";
            tracing::warn!(worker = %dead, %error, "{what}");
            false
        }
    }
}

/// Maximum time to close the store again.
const CLOSE: Duration = Duration::from_secs(5);

/// `worker end`, which a supervisor runs: ends the leases of a dead worker and does nothing else.
pub(crate) async fn end(url: StoreUrl, dead: Option<String>) -> Result<ExitCode, Failure> {
    let dead = dead.and_then(|id| WorkerId::new(&id).ok());
    let dead =
        dead.ok_or_else(|| Failure::usage(format!("{} names no worker", super::DEAD_WORKER)))?;
    if url.file().is_some_and(|path| !path.exists()) {
        return Err(format!("there is no store {url} any more").into());
    }
    let started = store::start(&url, Purpose::Direct, Given::from_environment(&[])?);
    let queue = started.map_err(|error| Failure::from(&error))?.queue;
    // The leases are taken back by the next passes of the reaper, which a shutdown would prevent.
    let ended = end_dead(&queue, dead.clone()).await && holds_nothing(&queue, &dead).await;
    queue.shutdown(CLOSE).await;
    Ok(if ended { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Interval at which the leases of a worker are counted until none is left.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until a worker holds no lease. False if that cannot be read.
async fn holds_nothing(queue: &Queue, worker: &WorkerId) -> bool {
    loop {
        let of = worker.clone();
        match queue.read(move |reader| leases(reader, &of)).await {
            Ok(0) => return true,
            Ok(_) => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) => {
                tracing::warn!(%worker, %error, "cannot read the leases of a dead worker");
                return false;
            }
        }
    }
}

/// Number of jobs that a worker holds.
fn leases(reader: &mut dyn Reader, worker: &WorkerId) -> Result<usize, StoreError> {
    let filter = Filter { view: Some(View::Processing), ..Filter::default() };
    let held = |job: &Job| job.lease().is_some_and(|lease| lease.worker == *worker);
    let (mut count, mut after) = (0, None);
    loop {
        let page = reader.list(&filter, after, PAGE_ROWS)?;
        count += page.jobs.iter().filter(|job| held(job)).count();
        if page.next.is_none() {
            return Ok(count);
        }
        after = page.next;
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
    fn a_process_that_ended_is_gone_before_it_is_reaped() {
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
