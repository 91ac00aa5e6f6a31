//! Rows of another store, put in place as they are. Counters are derived from them; nothing is
//! counted as having happened.

use super::work::Work;
use crate::store::{CopyRows, Doc, DocWrite, JobDetail};

pub(super) fn import(work: &mut Work, rows: &CopyRows) {
    let CopyRows { queues, tats, figures, jobs, groups, attempts, keys, next_id } = rows;
    for queue in queues {
        if work.ensure_queue(&queue.name).is_ok() {
            work.change_queue(&queue.name, |stored| stored.clone_from(queue));
        }
    }
    for (queue, tats) in tats {
        work.put_tats(queue, tats);
    }
    for JobDetail { job, payload, result, progress, last_error } in jobs {
        let id = job.id;
        if work.ensure_queue(&job.queue).is_err() {
            continue;
        }
        work.put_imported(job.clone(), payload.clone());
        let docs = [(Doc::Result, result), (Doc::Progress, progress)];
        for (doc, text) in docs.into_iter().filter_map(|(doc, text)| Some((doc, text.clone()?))) {
            work.changes.docs.push(DocWrite { job: id, doc, text });
        }
        work.changes.errors.extend(last_error.clone().map(|error| (id, error)));
    }
    for record in keys {
        work.put_key(record.key.clone(), Some(record.clone()));
    }
    work.changes.attempts.extend(attempts.iter().cloned());
    work.changes.groups.extend(groups.iter().cloned());
    work.changes.figures.extend(figures.iter().cloned());
    work.changes.next_id = *next_id;
}
