//! The second phase: no faults. All jobs must finish, and the store must hold what was promised.

use windlass_core::machine::{Input, Phase, Request};
use windlass_core::store::{Admin, Dump};
use windlass_core::{JobId, Queue, StateName};

use super::World;
use super::behaviour::queue;
use super::event::{End, Event, Sender, Signal};
use super::process::Process;

impl World {
    /// Ends the phase with faults.
    pub(super) fn heal(&mut self) {
        // The last of these transactions outlives the faults.
        self.hold_foreign_to_the_end();
        self.healed = Some(self.now);
        self.full_until = 0;
        self.wall.strobe(0, self.now);
        self.trace.note(&[22], || "the phase with faults ends".to_owned());
        self.resume_queues();
        for at in 0..self.processes.len() {
            self.resume(at);
            self.end_hanging(at);
            self.handle(at, Input::Slots(usize::try_from(self.options.slots).unwrap_or(1)));
        }
        self.after(1_000, Event::Look);
    }

    fn resume_queues(&mut self) {
        for number in 0..self.options.queues {
            let name = queue(number);
            let paused = self.ledger.queue(&name).is_some_and(Queue::is_paused);
            if paused {
                let to = self.any_process();
                self.send(to, Sender::Operator, &Request::Admin(Admin::Resume(name)));
            }
        }
    }

    /// Ends the handlers that hang.
    fn end_hanging(&mut self, at: usize) {
        let Some(boot) = self.boot_of(at) else { return };
        for token in self.alive(at) {
            let verdict = windlass_core::Verdict::Complete { result: None };
            let end = Event::RunEnds(at, boot, token, End::Says(verdict));
            let after = self.work.below(2_000);
            self.after(after, end);
        }
    }

    /// Shuts every process down once all is done; else looks again later.
    pub(super) fn look_around(&mut self) {
        if self.closing {
            return self.close();
        }
        self.check_steady();
        let answered = self.submissions.iter().all(|submission| !submission.open);
        let done = self.ledger.unfinished() == 0 && answered && self.remotes_idle();
        let done = done && self.is_settled();
        let healed = self.healed.unwrap_or(self.now);
        if done {
            self.closing = true;
            for at in 0..self.processes.len() {
                if let Some(boot) = self.boot_of(at) {
                    self.after(0, Event::Signal(at, boot, Signal::Drain(60_000)));
                }
            }
        } else if self.now - healed > self.bound() {
            return self.stuck();
        }
        self.resume_queues();
        self.hold_foreign_to_the_end();
        self.after(500, Event::Look);
    }

    /// Whether every process is up and well, and no event of the first phase is pending for one.
    fn is_settled(&self) -> bool {
        let on_its_way = |event: &Event| {
            matches!(event, Event::Deliver(..) | Event::Signal(..) | Event::Boot(..))
        };
        let well = |process: &Process| {
            process.up.as_ref().is_some_and(|up| {
                let running = up.machine.phase() == Phase::Running;
                running && up.suspended_until <= self.now && up.call.is_none()
            })
        };
        let over = self.detached.is_empty() && self.foreign.is_empty();
        over && self.processes.iter().all(well) && !self.upcoming.values().any(on_its_way)
    }

    /// Time limit of the second phase in ms: all steps of the clock, and for each attempt two
    /// leases, its wait and its run.
    fn bound(&self) -> u64 {
        let options = &self.options;
        let attempts = options.retries + 2;
        self.wall.moved + attempts * (2 * options.lease_ms.1 + 8_000 + options.run_ms) + 120_000
    }

    fn stuck(&mut self) {
        let waiting = self.ledger.details().filter(|row| !row.job.state.name().is_finished());
        let stuck: Vec<String> =
            waiting.map(|row| format!("#{} {:?}", row.job.id, row.job)).collect();
        let open = self.submissions.iter().filter(|submission| submission.open).count();
        let bound = self.bound();
        let what = format!(
            "{} jobs are not done after {bound} ms without faults, {open} requests unanswered: {}",
            stuck.len(),
            stuck.first().map_or("", String::as_str)
        );
        self.fail("E1 everything ends", what);
    }

    /// Waits until every process has stopped, then checks the store.
    fn close(&mut self) {
        let up = self.processes.iter().filter(|process| process.up.is_some()).count();
        let healed = self.healed.unwrap_or(self.now);
        if up > 0 {
            if self.now - healed > 2 * self.bound() + 120_000 {
                return self.fail("E4 no residue", format!("{up} processes do not stop"));
            }
            return self.after(500, Event::Look);
        }
        let before = self.disk.dump();
        self.audit();
        self.check_end(&before);
        if let Err(error) = self.disk.power_cut() {
            return self.fail("E5 reopen", error);
        }
        let after = self.disk.dump();
        if before != after {
            self.fail("E5 reopen", "the store differs after it is reopened".to_owned());
        }
        self.upcoming.clear();
    }

    fn check_end(&mut self, dump: &Dump) {
        if let Some(what) = unreasoned(dump) {
            self.fail("E3 reasons", what);
        }
        if self.ledger.leases() > 0 {
            let leases = self.ledger.leases();
            self.fail("E4 no residue", format!("{leases} leases are left"));
        }
        if let Some((rule, what)) = self.counted() {
            self.fail(rule, what);
        }
    }

    /// Checks that no acknowledged job was lost, none ran more often than it was claimed, and
    /// without faults none ran twice.
    fn counted(&self) -> Option<(&'static str, String)> {
        let quiet = self.options.faults == crate::faults::FaultSet::default();
        for (payload, sent) in &self.ledger.sent {
            if sent.acknowledged && sent.stored == 0 {
                return Some((
                    "E2 nothing lost",
                    format!("{payload} was acknowledged and is lost"),
                ));
            }
            if sent.stored > sent.delivered {
                return Some(("E2 nothing lost", format!("{payload} is stored too often")));
            }
        }
        self.ledger.lives().find_map(|(id, life)| {
            let (ran, claimed) = (life.executions, life.all_claims);
            if ran > claimed {
                return Some((
                    "E2 nothing lost",
                    format!("#{id} ran {ran} times, claimed {claimed}"),
                ));
            }
            let twice = quiet && ran > 1;
            twice.then(|| ("E2 nothing lost", format!("#{id} ran {ran} times without a fault")))
        })
    }
}

/// Finds a failed job without an error.
fn unreasoned(dump: &Dump) -> Option<String> {
    let mut failed = dump.jobs.iter().filter(|row| row.job.state.name() == StateName::Failed);
    let id: JobId = failed.find(|row| row.last_error.is_none())?.job.id;
    Some(format!("#{id} failed without an error"))
}
