//! Operators: they cancel, replay, delete, pause and resume, and set limits.

use windlass_core::bulk::{Action, Canary, Pace, Target, Terms};
use windlass_core::machine::{Input, Request};
use windlass_core::store::{Admin, DeadFilter, Filter, Retention};
use windlass_core::{
    Aging, BulkId, Flow, JobsPerSecond, KindConcurrency, KindLimits, MaxQueued, MaxRunning, Millis,
    Payload, QueueSettings, Rate, SettingKey, View, Wall,
};

use super::World;
use super::behaviour::{kind as kind_name, queue};
use super::event::{Event, Sender};
use crate::faults::Fault;

impl World {
    /// Sends a command of an operator, and schedules the next.
    pub(super) fn operate(&mut self) {
        if self.healed.is_some() {
            return;
        }
        if let Some(command) = self.draw_command() {
            let to = self.any_process();
            self.send(to, Sender::Operator, &Request::Admin(command));
        }
        self.draw_input();
        let pause = self.work.range(100, 1_500);
        self.after(pause, Event::Operate);
    }

    fn draw_command(&mut self) -> Option<Admin> {
        let job = self.any_job();
        let name = queue(self.work.below(self.options.queues));
        if self.strikes(Fault::Cancels, 250) {
            return Some(Admin::Cancel(job));
        }
        if self.strikes(Fault::Replays, 250) {
            let page = usize::try_from(self.work.range(1, 5)).unwrap_or(1);
            let all = self.work.chance(300);
            let filter = DeadFilter::default();
            let dead = Admin::ReplayDead { filter, after: None, limit: page };
            if self.work.chance(300) {
                return Some(self.draw_bulk());
            }
            return Some(if all { dead } else { Admin::Replay(job) });
        }
        if self.strikes(Fault::Deletes, 150) {
            let whole_queue = self.work.chance(400);
            return Some(if whole_queue { Admin::DeleteQueue(name) } else { Admin::Delete(job) });
        }
        if self.strikes(Fault::Pauses, 150) {
            return Some(Admin::pause(name));
        }
        if self.options.faults.has(Fault::Pauses) && self.work.chance(400) {
            return Some(Admin::Resume(name));
        }
        if self.strikes(Fault::Limits, 100) {
            let flow = if self.work.chance(500) { self.draw_flow() } else { Flow::NONE };
            let settings = QueueSettings {
                flow,
                max_queued: MaxQueued::new(self.work.range(1, 20)).ok(),
                concurrency: MaxRunning::new(u32::try_from(self.work.range(1, 4)).unwrap_or(1))
                    .ok(),
                ..QueueSettings::default()
            };
            let unset = || Box::new(QueueSettings::default());
            let expected = self.work.chance(500).then(unset);
            return Some(Admin::SetQueue { name, settings, expected });
        }
        if self.options.faults.has(Fault::Shutdown) && self.work.chance(30) {
            let at = self.any_process();
            let worker = self.processes[at].up.as_ref().map(|up| up.worker.clone());
            return worker.map(Admin::StopWorker);
        }
        if self.work.chance(20) {
            let key = SettingKey::new("colour").expect("a plain name");
            return Some(Admin::set_setting(key, None));
        }
        None
    }

    /// Draws rates, limits of kinds and aging. All of them let jobs start sooner or later.
    fn draw_flow(&mut self) -> Flow {
        let number = |n: u64| u32::try_from(n).unwrap_or(1);
        let rate = |world: &mut Self| {
            let (limit, burst) = (world.work.range(4, 10), world.work.range(1, 3));
            Rate::new(number(limit), 200, Some(number(burst))).ok()
        };
        let aging = Aging::new(self.work.range(1, 2_000)).ok();
        let aging = aging.filter(|_| self.work.chance(300));
        let of_queue = rate(self).filter(|_| self.work.chance(500));
        let mut kinds = Vec::new();
        for kind in 0..self.options.kinds {
            let concurrency = KindConcurrency::new(number(self.work.range(1, 3))).ok();
            let concurrency = concurrency.filter(|_| self.work.chance(500));
            let rate = rate(self).filter(|_| self.work.chance(300));
            let limits = KindLimits { concurrency, rate };
            if !limits.is_empty() && self.work.chance(400) {
                kinds.push((kind_name(kind), limits));
            }
        }
        kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
        Flow { aging, rate: of_queue, kinds }
    }

    /// Draws the start, continuation or stop of a bulk action.
    fn draw_bulk(&mut self) -> Admin {
        let id = BulkId(u32::try_from(self.work.range(1, 6)).unwrap_or(1));
        if self.work.chance(300) {
            return Admin::ContinueBulk(id);
        }
        if self.work.chance(200) {
            return Admin::StopBulk(id);
        }
        let view = if self.work.chance(700) { View::Failed } else { View::Cancelled };
        let filter = Filter { view: Some(view), ..Filter::default() };
        let number = |n: u64| u32::try_from(n).unwrap_or(1);
        let paced = self.work.chance(500);
        let per_s = JobsPerSecond::new(number(self.work.range(1, 20))).ok();
        let canaried = self.work.chance(400);
        let (count, max_failed) = (number(self.work.range(1, 4)), number(self.work.below(2)));
        Admin::StartBulk(Box::new(Terms {
            action: Action::Retry,
            target: Target::Filter(filter),
            by: String::new(),
            of: 0,
            most: None,
            pace: per_s.filter(|_| paced).map(|per_s| Pace::new(per_s, Wall::new(0))),
            canary: canaried.then_some(Canary { count, max_failed }),
        }))
    }

    /// Draws an input to a process that gets no answer.
    fn draw_input(&mut self) {
        let at = self.any_process();
        if self.processes[at].up.as_ref().is_none_or(|up| up.suspended_until > self.now) {
            return;
        }
        if self.work.chance(50) {
            self.handle(at, Input::Changed);
        }
        if self.work.chance(60) {
            let slots = usize::try_from(self.work.below(self.options.slots + 1)).unwrap_or(1);
            self.handle(at, Input::Slots(slots));
        }
        if self.options.retention_ms.is_some() && self.work.chance(30) {
            let age = Some(Millis::new(self.work.range(500, 20_000)));
            let retention = Retention { done: age, failed: age, cancelled: age };
            self.handle(at, Input::Retention(retention));
        }
        let alive = self.alive(at);
        if let Some(token) = self.work.pick(&alive).copied()
            && self.work.chance(200)
        {
            let progress = Payload::new("50").expect("a short text");
            self.handle(at, Input::Progress { token, progress });
        }
    }
}
