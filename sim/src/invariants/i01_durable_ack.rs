//! I1: when a success reaches a client, its effect survives a crash at that moment, and every later
//! one until it is legally changed.

use windlass_core::machine::{Answer, Request};
use windlass_core::store::{Admin, Dump, JobDetail, Settle};
use windlass_core::{JobId, NewJob, Receipt};

use super::{Replied, Seen};
use crate::ledger::{Ledger, VerdictKind};

/// Checks answers against commits, and what a crash leaves against everything committed.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    match seen {
        Seen::Replied(replied) => {
            replied_before_stored(ledger, replied).or_else(|| lost(ledger, replied))
        }
        Seen::Image(image) => missing(ledger, image.dump),
        _ => None,
    }
}

fn replied_before_stored(ledger: &Ledger, replied: &Replied<'_>) -> Option<String> {
    match (replied.request, replied.answer) {
        (Request::Enqueue(new), Answer::Enqueued(Ok(receipt))) => stored(ledger, new, receipt),
        (Request::EnqueueMany(many), Answer::EnqueuedMany(results)) => {
            let mut acked = many.iter().zip(results);
            acked.find_map(|(new, result)| stored(ledger, new, result.as_ref().ok()?))
        }
        (Request::Settle(settle), Answer::Settled(Ok(_))) => reported(ledger, settle),
        (Request::SettleMany(many), Answer::SettledMany(results)) => {
            let mut acked = many.iter().zip(results).filter(|(_, result)| result.is_ok());
            acked.find_map(|(settle, _)| reported(ledger, settle))
        }
        (Request::Admin(command), Answer::Admin(Ok(_))) => commanded(ledger, command),
        (Request::Poll(_), Answer::Jobs(runs)) => runs.iter().find_map(|run| {
            let claimed = ledger.life(run.job.id).is_some_and(|life| life.epoch >= run.job.epoch);
            (!claimed).then(|| format!("#{} was handed out, but not claimed", run.job.token()))
        }),
        _ => None,
    }
}

fn stored(ledger: &Ledger, new: &NewJob, receipt: &Receipt) -> Option<String> {
    match ledger.life(receipt.id) {
        None => Some(format!("#{} was acknowledged, but no commit has stored it", receipt.id)),
        Some(life) if life.payload != new.payload => Some(format!(
            "#{} was acknowledged for {:?}, which it does not have",
            receipt.id, new.payload
        )),
        Some(_) => None,
    }
}

fn reported(ledger: &Ledger, settle: &Settle) -> Option<String> {
    let verdict = VerdictKind::of(&settle.verdict);
    let report = (settle.token.epoch, verdict);
    let taken = ledger.life(settle.token.job).is_some_and(|life| life.reports.contains(&report));
    (!taken).then(|| format!("#{} {verdict:?} was acknowledged, but not committed", settle.token))
}

fn commanded(ledger: &Ledger, command: &Admin) -> Option<String> {
    let life = |id: JobId| ledger.life(id);
    let done = match command {
        Admin::Cancel(id) => life(*id).is_some_and(|life| life.cancelled),
        Admin::Replay(id) => {
            let generation = life(*id).and_then(|life| life.detail.as_ref());
            generation.is_none_or(|detail| detail.job.generation > 0)
        }
        Admin::Delete(id) => life(*id).is_some_and(|life| life.detail.is_none()),
        _ => true,
    };
    (!done).then(|| format!("{command:?} was acknowledged, but not committed"))
}

fn lost(ledger: &Ledger, replied: &Replied<'_>) -> Option<String> {
    replied.image?.iter().find_map(|left| differs(ledger, left.job.id, Some(left)))
}

fn missing(ledger: &Ledger, dump: &Dump) -> Option<String> {
    let mut left = dump.jobs.iter().peekable();
    for detail in ledger.details() {
        let id = detail.job.id;
        while left.next_if(|row| row.job.id < id).is_some() {}
        let found = left.next_if(|row| row.job.id == id);
        if let Some(what) = differs(ledger, id, found) {
            return Some(what);
        }
    }
    None
}

fn differs(ledger: &Ledger, id: JobId, left: Option<&JobDetail>) -> Option<String> {
    let kept = ledger.life(id)?.detail.as_ref()?;
    match left {
        None => Some(format!("#{id} was committed as {}, now it is gone", kept.job.state.name())),
        Some(left) if left != kept => Some(format!("#{id} was {kept:?}\n  now it is {left:?}")),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::machine::{Answer, Request};
    use windlass_core::{Payload, Receipt};

    use super::super::testing::{Scene, detail, new_job};
    use super::super::{Image, Replied, Seen};

    fn replied<'a>(request: &'a Request, answer: &'a Answer) -> Seen<'a> {
        Seen::Replied(Replied { request, answer, poisoned: false, image: None })
    }

    #[test]
    fn an_acknowledged_job_that_no_commit_has_stored_is_caught() {
        let mut scene = Scene::new();
        let request = Request::Enqueue(new_job());
        let answer = Answer::Enqueued(Ok(Receipt::new(detail(1).job.id, false)));
        assert!(scene.catches("I1", &replied(&request, &answer)));
        scene.store(detail(1));
        assert!(scene.allows(&replied(&request, &answer)));
    }

    #[test]
    fn an_acknowledgement_with_the_job_of_another_client_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let mut other = new_job();
        other.payload = Payload::new("2").unwrap();
        let request = Request::Enqueue(other);
        let answer = Answer::Enqueued(Ok(Receipt::new(detail(1).job.id, true)));
        assert!(scene.catches("I1", &replied(&request, &answer)));
    }

    #[test]
    fn a_job_that_a_crash_would_lose_is_caught() {
        let mut scene = Scene::new();
        scene.store(detail(1));
        let whole = scene.dump();
        assert!(scene.allows(&Seen::Image(Image { dump: &whole, disagreements: &[] })));
        let mut torn = scene.dump();
        torn.jobs.clear();
        assert!(scene.catches("I1", &Seen::Image(Image { dump: &torn, disagreements: &[] })));
    }
}
