//! Figures of this process from the kernel: CPU time, context switches, memory. A thread that ends
//! between two samples is not counted, so samples are taken while none starts or ends.

use std::fs;
use std::path::Path;

use crate::measure::Outcome;

/// Figures of a process at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// CPU time of all threads, in nanoseconds.
    pub(crate) on_core_ns: u64,
    /// Context switches, voluntary or not.
    pub(crate) switches: u64,
    /// Resident memory, in KiB.
    pub(crate) rss_kib: u64,
}

/// Reads the figures now.
pub(crate) fn usage() -> Outcome<Usage> {
    let mut seen = Usage::default();
    for thread in fs::read_dir("/proc/self/task")? {
        let folder = thread?.path();
        let [schedule, status] = ["schedstat", "status"].map(|file| still(&folder.join(file)));
        let (Some(schedule), Some(status)) = (schedule?, status?) else { continue };
        // Time on a core, time in line for one, and how often it was given one.
        let on_core = schedule.split_whitespace().next().ok_or("schedstat is empty")?;
        seen.on_core_ns += on_core.parse::<u64>()?;
        let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
        seen.switches += switches.filter_map(number).sum::<u64>();
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let rss = status.lines().find(|line| line.starts_with("VmRSS:"));
    seen.rss_kib = rss.and_then(number).ok_or("the kernel does not tell VmRSS")?;
    Ok(seen)
}

/// Reads a file of a thread; `None` if the thread has ended.
fn still(path: &Path) -> Outcome<Option<String>> {
    const NO_SUCH_PROCESS: i32 = 3;
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => Ok(None),
        Err(_) if path.parent().is_some_and(|thread| !thread.exists()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Size of all files in a folder, in KiB.
pub(crate) fn folder_kib(folder: &Path) -> Outcome<u64> {
    let sizes = fs::read_dir(folder)?.map(|file| Ok(file?.metadata()?.len()));
    Ok(sizes.sum::<std::io::Result<u64>>()? / 1_024)
}

/// Size of a file in KiB; 0 if there is none.
pub(crate) fn file_kib(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len() / 1_024)
}

/// The number behind the name of a line.
fn number(line: &str) -> Option<u64> {
    line.split_whitespace().nth(1)?.parse().ok()
}
