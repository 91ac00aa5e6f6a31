//! Which process a worker is, and when another process of the same machine knows that it is dead.

use alloc::sync::Arc;
use core::fmt;

use super::{Worker, WorkerKind};

/// One process among all of a machine: process ids are used again, and mean something only within
/// one start of the machine and one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    machine: Arc<str>,
    started: u64,
}

impl Instance {
    /// The process that started at `started`, by the clock of `machine`: a text without spaces that
    /// names one start of a machine and one namespace of process ids. `None` if it is not printable
    /// ASCII or too long.
    pub fn new(machine: &str, started: u64) -> Option<Self> {
        let fits = (1..=MACHINE_BYTES).contains(&machine.len());
        let printable = machine.bytes().all(|byte| byte.is_ascii_graphic());
        (fits && printable).then(|| Self { machine: machine.into(), started })
    }

    /// Parses the text form that `Display` writes.
    ///
    /// ```
    /// use windlass_core::store::Instance;
    /// let instance = Instance::new("boot-7/pid:[1]", 4_711).unwrap();
    /// assert_eq!(instance.to_string(), "4711 boot-7/pid:[1]");
    /// assert_eq!(Instance::parse("4711 boot-7/pid:[1]"), Some(instance));
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (started, machine) = text.split_once(' ')?;
        Self::new(machine, started.parse().ok()?)
    }

    /// When the process started, by the clock of its machine.
    pub fn started(&self) -> u64 {
        self.started
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.started, self.machine)
    }
}

/// The longest name of a machine.
const MACHINE_BYTES: usize = 255;

impl Worker {
    /// Whether the process of this worker is dead, as far as the process of `observer` can know: it
    /// was on the same host, in the same start of the machine and the same namespace of process
    /// ids. `lives` says whether the process with this id that started then is still there; it must
    /// say yes where it cannot tell.
    ///
    /// The leases of such a worker are to be taken back at once: see
    /// [`Admin::EndWorker`](super::Admin::EndWorker).
    pub fn has_died(&self, observer: &Self, lives: impl FnOnce(u32, u64) -> bool) -> bool {
        let (Some(pid), Some(process)) = (self.pid, &self.instance) else { return false };
        let Some(own) = &observer.instance else { return false };
        // What a remote worker says of itself was said to a server, which may be another machine.
        self.kind != WorkerKind::Remote
            && self.id != observer.id
            && (&self.host, &process.machine) == (&observer.host, &own.machine)
            && !lives(pid, process.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerId;

    fn worker(id: &str, host: &str, machine: &str, pid: u32) -> Worker {
        let new = Worker::new(WorkerId::new(id).expect("a name"), host, WorkerKind::Local);
        Worker { pid: Some(pid), instance: Instance::new(machine, 100), ..new }
    }

    #[test]
    fn a_worker_is_dead_if_its_process_on_this_machine_is_gone() {
        let (own, other) = (worker("w1", "h", "m", 1), worker("w2", "h", "m", 2));
        assert!(other.has_died(&own, |pid, started| (pid, started) != (2, 100)));
        assert!(!other.has_died(&own, |pid, started| (pid, started) == (2, 100)));
    }

    #[test]
    fn nothing_is_known_of_processes_elsewhere_or_without_a_mark() {
        let own = worker("w1", "h", "m", 1);
        let unmarked = Worker { instance: None, ..worker("w2", "h", "m", 2) };
        let without_pid = Worker { pid: None, ..worker("w2", "h", "m", 2) };
        let remote = Worker { kind: WorkerKind::Remote, ..worker("w2", "h", "m", 2) };
        let (host, machine) = (worker("w2", "other", "m", 2), worker("w2", "h", "other", 2));
        for other in [&unmarked, &without_pid, &remote, &host, &machine, &own] {
            assert!(!other.has_died(&own, |_, _| false), "{other:?}");
        }
        let other = worker("w2", "h", "m", 2);
        assert!(!other.has_died(&unmarked, |_, _| false), "who looks does not know where it is");
    }

    #[test]
    fn only_a_short_printable_name_is_a_machine() {
        let long = "m".repeat(MACHINE_BYTES);
        assert!(Instance::new(&long, 0).is_some());
        for bad in ["", "a b", "a\0", "ä", &(long + "m")] {
            assert_eq!(Instance::new(bad, 0), None, "{bad:?}");
        }
        for bad in ["", "7", "7 ", " m", "x m", "-1 m", "18446744073709551616 m", "7 m m"] {
            assert_eq!(Instance::parse(bad), None, "{bad:?}");
        }
    }
}
