//! Hints of changes by other processes on the same store: the names of the changed queues.
//!
//! A change made by another process is seen as such and no more, several times a second beside busy
//! workers. The rows of the queues say where something happened. They are read at most twice a
//! second, and nothing is said when they are the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use windlass_core::{QueueName, QueueRow};
use windlass_runtime_tokio::{Queue, ReadError};

use crate::api::hub::Hub;

/// The shortest time between two hints.
const PAUSE: Duration = Duration::from_millis(500);
/// Queues that one hint names.
pub(crate) const NAMED: usize = 100;

/// Queues in which something changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hint {
    /// In the order of their names, [`NAMED`] at most.
    pub(crate) queues: Vec<QueueName>,
    /// Whether there are others.
    pub(crate) more: bool,
}

/// Notifies the hub of changes by other processes, whenever `wrote` signals one, until the queue
/// ends.
pub(crate) async fn follow(hub: Arc<Hub>, queue: Queue, wrote: Arc<Notify>) {
    let mut known = queue.queues().await.unwrap_or_default();
    loop {
        wrote.notified().await;
        match queue.queues().await {
            Ok(rows) => {
                if let Some(hint) = changed(&known, &rows) {
                    hub.others_changed(hint);
                }
                known = rows;
            }
            Err(ReadError::Stopped) => return,
            Err(ReadError::Store(error)) => {
                tracing::debug!(%error, "changes by other processes could not be read");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The queues whose row is another, new, or gone.
fn changed(before: &[QueueRow], now: &[QueueRow]) -> Option<Hint> {
    let by_name = |rows: &[QueueRow]| -> BTreeMap<QueueName, QueueRow> {
        rows.iter().map(|row| (row.queue.name.clone(), row.clone())).collect()
    };
    let (mut gone, mut queues) = (by_name(before), BTreeSet::new());
    for row in now {
        let was = gone.remove(&row.queue.name);
        if was.as_ref() != Some(row) {
            queues.insert(row.queue.name.clone());
        }
    }
    queues.extend(gone.into_keys());
    let more = queues.len() > NAMED;
    let queues: Vec<QueueName> = queues.into_iter().take(NAMED).collect();
    (!queues.is_empty()).then_some(Hint { queues, more })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{Counts, Kind};

    fn row(n: usize, queued: u64) -> QueueRow {
        let queue = windlass_core::Queue::new(QueueName::new(&format!("q{n:03}")).unwrap());
        let kinds = vec![(Kind::default(), Counts::new([queued, 0, 0, 0, 0, 0]))];
        QueueRow { kinds, ..QueueRow::empty(queue) }
    }

    #[test]
    fn only_queues_that_are_not_as_they_were_are_named_and_not_too_many() {
        let before = [row(1, 1), row(2, 1), row(3, 1)];
        assert_eq!(changed(&before, &before), None);
        let hint = changed(&before, &[row(1, 1), row(2, 2), row(4, 1)]).unwrap();
        let names: Vec<&str> = hint.queues.iter().map(QueueName::as_str).collect();
        assert_eq!((names, hint.more), (vec!["q002", "q003", "q004"], false));
        let many: Vec<QueueRow> = (0..=NAMED).map(|n| row(n, 1)).collect();
        let hint = changed(&[], &many).unwrap();
        assert_eq!((hint.queues.len(), hint.more), (NAMED, true));
    }
}
