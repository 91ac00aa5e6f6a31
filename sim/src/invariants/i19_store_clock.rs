//! I19: where the store has its own clock, `now` is never behind an instant of a row that was
//! answered or changed, except across a step of that clock back.

use windlass_core::{Job, Wall};

use super::Seen;
use crate::ledger::Ledger;

/// Compares `now` with the rows.
pub(super) fn check(ledger: &Ledger, seen: &Seen<'_>) -> Option<String> {
    match seen {
        Seen::Answered(answered) => {
            let (now, set_back) = (answered.answers.now, answered.set_back);
            answered.answers.jobs_found().find_map(|job| behind(ledger, job, now, set_back))
        }
        Seen::Commit(commit) => {
            let (now, set_back) = (commit.out.now, commit.set_back);
            let changed = commit.stories.iter().filter(|story| !story.events.is_empty());
            let before = changed.filter_map(|story| story.before.as_ref());
            before.into_iter().find_map(|job| behind(ledger, job, now, set_back))
        }
        _ => None,
    }
}

fn behind(ledger: &Ledger, job: &Job, now: Wall, set_back: Option<u64>) -> Option<String> {
    let read = ledger.life(job.id)?.read;
    let excused = set_back.is_some_and(|at| at >= read);
    (job.updated_at > now && !excused)
        .then(|| format!("#{} was changed at {}, but it is {now}", job.id, job.updated_at))
}

#[cfg(test)]
mod tests {
    use windlass_core::Wall;
    use windlass_core::store::Answers;

    use super::super::testing::{NOW, Scene, detail};
    use super::super::{Answered, Seen};
    use crate::ledger::JobEvent;

    #[test]
    fn a_clock_behind_a_row_is_caught_unless_it_was_set_back_since() {
        let mut scene = Scene::new();
        let mut ahead = detail(1);
        ahead.job.updated_at = Wall::new(NOW + 1);
        scene.store(ahead.clone());
        let story = scene.story(1, Some(ahead.clone()), vec![JobEvent::FellDue]);
        assert!(scene.breaks("I19", story));
        let answers =
            Answers { now: Wall::new(NOW), jobs: vec![Some(ahead.job)], ..Answers::default() };
        let answered = |set_back| Seen::Answered(Answered { answers: &answers, set_back });
        assert!(scene.catches("I19", &answered(None)));
        assert!(scene.catches("I19", &answered(Some(scene.at - 1))));
        assert!(scene.allows(&answered(Some(scene.at))));
    }
}
