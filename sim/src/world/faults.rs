//! Faults that do not depend on a call: crashes, power cuts, shutdowns, clock steps, full disks.

use super::World;
use super::event::{Event, Signal};
use crate::clock::MAX_WOBBLE;
use crate::faults::Fault;

impl World {
    /// Draws faults, each at its own rate, and schedules the next draw.
    pub(super) fn strike_faults(&mut self) {
        if self.healed.is_some() {
            return;
        }
        self.check_steady();
        let rate = self.options.rate;
        let at = usize::try_from(self.luck.below(self.processes.len() as u64)).unwrap_or(0);
        if self.strikes(Fault::Crash, rate) {
            self.crash(at);
        }
        if self.strikes(Fault::PowerCut, rate / 4) {
            self.power_cut();
        }
        self.shutdowns(at, rate);
        self.clocks(at, rate);
        if self.strikes(Fault::DiskFull, rate / 4) {
            self.full_until = self.now + self.luck.range(200, 8_000);
        }
        if self.options.interleaved && self.strikes(Fault::ForeignTransaction, rate / 4) {
            self.hold_foreign();
        }
        if self.options.faults.has(Fault::Overload) && self.luck.chance(rate) {
            self.coverage.fault(Fault::Overload);
        }
        if self.options.retention_ms.is_some() && self.luck.chance(rate) {
            self.coverage.fault(Fault::Purges);
        }
        let pause = self.luck.range(50, 250);
        self.after(pause, Event::Faults);
    }

    fn shutdowns(&mut self, at: usize, rate: u64) {
        let Some(boot) = self.boot_of(at) else { return };
        let drain_ms = self.luck.below(6_000);
        if self.strikes(Fault::Shutdown, rate / 2) {
            self.after(0, Event::Signal(at, boot, Signal::Drain(drain_ms)));
            if self.strikes(Fault::SecondSignal, 300) {
                let first = self.luck.below(drain_ms + 500);
                self.after(first, Event::Signal(at, boot, Signal::Force));
                if self.luck.chance(500) {
                    let second = first + self.luck.below(300);
                    self.after(second, Event::Signal(at, boot, Signal::Force));
                }
            }
        }
        if self.strikes(Fault::ForcedShutdown, rate / 2) {
            self.after(0, Event::Signal(at, boot, Signal::Force));
        }
        if self.strikes(Fault::RollingRestart, rate / 8) {
            let mut wait = 0;
            for at in 0..self.processes.len() {
                if let Some(boot) = self.boot_of(at) {
                    self.after(wait, Event::Signal(at, boot, Signal::Drain(2_000)));
                    wait += self.luck.range(500, 3_000);
                }
            }
        }
    }

    fn clocks(&mut self, at: usize, rate: u64) {
        let now = self.now;
        // At least the smallest step that is detected; mostly seconds, sometimes an hour.
        let far = self.luck.chance(100);
        let by = self.luck.range(2_000, if far { 600_000 } else { 60_000 }).cast_signed();
        if self.strikes(Fault::StepForward, rate / 4) {
            self.set_wall(by, now);
        }
        if self.strikes(Fault::StepBack, rate / 4) {
            self.set_wall(-by, now);
        }
        if self.strikes(Fault::Strobe, rate) {
            let wobble = self.luck.below(2 * MAX_WOBBLE + 1).cast_signed();
            self.wall.strobe(wobble - MAX_WOBBLE.cast_signed(), now);
        }
        if self.strikes(Fault::Suspend, rate / 2) {
            let millis = self.luck.range(100, 20_000);
            self.suspend(at, millis);
        }
    }

    fn set_wall(&mut self, by: i64, now: u64) {
        self.wall.step(by, now);
        self.trace.note(&[21, by.unsigned_abs()], || format!("the wall clock is set by {by} ms"));
    }

    /// Kills every process and drops what was not durable. The rest is compared with all commits.
    fn power_cut(&mut self) {
        for at in 0..self.processes.len() {
            self.crash(at);
        }
        self.detached.clear();
        self.foreign.clear();
        if let Err(error) = self.disk.power_cut() {
            return self.fail("E5 reopen", error);
        }
        self.audit();
    }
}
