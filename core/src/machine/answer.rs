//! Answers after a commit: requests are answered, claimed jobs start.

use alloc::vec::Vec;

use super::demand::{Unserved, Waiter};
use super::input::{Answer, Effect, Phase, Run, StopReason};
use super::pending::{Entry, Origin, deal};
use super::runs::Runs;
use super::{Machine, Now};
use crate::store::{
    AdminDone, AdminRefused, Batch, Claimed, JobRefused, LeaseExtended, Leased, Settle,
};
use crate::{Demand, EnqueueRefused, LeaseToken, Queue, Receipt, Rejected, RequestId, StateName};

impl Machine {
    pub(super) fn answer_settles(
        &mut self,
        commands: &[Settle],
        entries: &[Entry],
        results: Vec<Result<StateName, JobRefused>>,
    ) {
        let stale = results.iter().filter(|result| is_stale(result)).count();
        self.stats.stale_reports += stale as u64;
        let mut rest = commands;
        deal(entries, results, |entry, results| {
            let (commands, behind) = rest.split_at(entry.len.min(rest.len()));
            rest = behind;
            match entry.origin {
                Origin::One(request) => {
                    let answer = results.next().map(Answer::Settled);
                    self.reply_if(request, answer);
                }
                Origin::List(request) => {
                    self.reply(request, Answer::SettledMany(results.collect()));
                }
                Origin::Local => {
                    for (settle, result) in commands.iter().zip(results) {
                        self.runs.settled(settle.token);
                        if result.is_ok() {
                            self.drain.note_settled(&settle.verdict);
                        }
                    }
                }
                Origin::Machine => {}
            }
        });
    }

    pub(super) fn answer_heartbeats(
        &mut self,
        batch: &Batch,
        started: Now,
        entries: &[Entry],
        local: &[LeaseToken],
        mut results: Vec<Result<LeaseExtended, JobRefused>>,
    ) {
        let own = results.split_off(results.len().saturating_sub(local.len()));
        let mut heartbeats = batch.heartbeats.iter();
        deal(entries, results, |entry, results| {
            for (result, heartbeat) in results.zip(&mut heartbeats) {
                match entry.origin.request() {
                    Some(request) => self.reply(request, Answer::LeaseExtended(result)),
                    None => self.local_heartbeat(heartbeat.token, started, result),
                }
            }
        });
        for (token, result) in local.iter().zip(own) {
            self.local_heartbeat(*token, started, result);
        }
        if !batch.heartbeats.is_empty() {
            self.runs.plan();
        }
    }

    /// A local run's heartbeat was written, or refused: then it must stop.
    fn local_heartbeat(
        &mut self,
        token: LeaseToken,
        started: Now,
        result: Result<LeaseExtended, JobRefused>,
    ) {
        match result {
            Ok(_) => {
                if let Some(stop_at) = self.runs.heartbeat_written(token, started.mono) {
                    self.effects.push_back(Effect::Extended { token, stop_at });
                }
            }
            Err(JobRefused::Rejected(Rejected::Stale { state: StateName::Cancelled, .. })) => {
                self.stop(token, StopReason::Cancelled, started.mono);
            }
            Err(_) => self.stop(token, StopReason::LeaseLost, started.mono),
        }
    }

    /// Answers operators; returns the queues they changed.
    pub(super) fn answer_admin(
        &mut self,
        now: Now,
        entries: &[Entry],
        results: Vec<Result<AdminDone, AdminRefused>>,
    ) -> Vec<Queue> {
        let mut queues = Vec::new();
        deal(entries, results, |entry, results| {
            let Some(result) = results.next() else { return };
            match &result {
                Ok(AdminDone::Queue(queue)) => queues.push(queue.clone()),
                Ok(AdminDone::Job(job)) if job.state.name() == StateName::Cancelled => {
                    if let Some(token) = self.runs.token_of(job.id) {
                        self.stop(token, StopReason::Cancelled, now.mono);
                    }
                }
                Ok(AdminDone::Worker { id, stopping: true }) => self.asked_to_stop(id),
                _ => {}
            }
            if let Some(request) = entry.origin.request() {
                self.reply(request, Answer::Admin(result));
            }
        });
        queues
    }

    pub(super) fn answer_enqueues(
        &mut self,
        entries: &[Entry],
        results: Vec<Result<Receipt, EnqueueRefused>>,
    ) {
        for receipt in results.iter().flatten() {
            if receipt.duplicate {
                self.stats.deduplicated += 1;
            } else {
                self.stats.enqueued += 1;
            }
        }
        deal(entries, results, |entry, results| match entry.origin {
            Origin::One(request) => self.reply_if(request, results.next().map(Answer::Enqueued)),
            Origin::List(request) => {
                self.reply(request, Answer::EnqueuedMany(results.collect()));
            }
            Origin::Local | Origin::Machine => {}
        });
    }

    /// Runs what was claimed for the local slots; or gives it back, if none may start any more.
    pub(super) fn start(&mut self, now: Now, started: Now, claimed: Claimed) {
        if !claimed.dry {
            self.demands.note_ready_local();
        }
        if self.phase() != Phase::Running {
            return self.give_back(claimed.jobs.iter().map(|leased| leased.job.token()).collect());
        }
        for Leased { job, payload, .. } in claimed.jobs {
            // The commit took so long that the lease is almost over: give the job back.
            if Runs::is_too_late(&job, started.mono, now.mono) {
                self.give_back(Vec::from([job.token()]));
                continue;
            }
            let stop_at = self.runs.start(&job, started.mono, now.mono);
            self.stats.started += 1;
            self.effects.push_back(Effect::Run { run: Run { job, payload }, stop_at });
        }
    }

    /// Gives claimed jobs to the waiting polls; jobs of polls that are gone are given back.
    pub(super) fn serve(
        &mut self,
        now: Now,
        started: Now,
        demand: &Demand,
        waiters: Vec<Waiter>,
        claimed: Claimed,
    ) {
        let mut jobs = claimed.jobs.into_iter().peekable();
        for (at, waiter) in waiters.into_iter().enumerate() {
            let (mut mine, mut late) = (Vec::new(), Vec::new());
            while let Some(Leased { job, payload, .. }) = jobs.next_if(|leased| leased.taker == at)
            {
                if Runs::is_too_late(&job, started.mono, now.mono) {
                    late.push(job.token());
                } else {
                    mine.push(Run { job, payload });
                }
            }
            // What one claim may bring was used up before its turn: it was not tried.
            if claimed.cut && mine.is_empty() && late.is_empty() {
                self.demands.untried(demand, waiter);
                continue;
            }
            self.give_back(late);
            if mine.is_empty() {
                let request = waiter.request;
                if self.demands.unserved(demand, waiter, now.mono) == Unserved::Over {
                    self.reply(request, Answer::Jobs(Vec::new()));
                }
                continue;
            }
            let there = self.demands.served(&waiter);
            if there && self.phase() == Phase::Running {
                self.reply(waiter.request, Answer::Jobs(mine));
                continue;
            }
            self.give_back(mine.iter().map(|run| run.job.token()).collect());
            if there {
                self.reply(waiter.request, Answer::Jobs(Vec::new()));
            }
        }
        if !claimed.dry {
            self.demands.note_ready_group(demand);
        }
    }
}

impl Machine {
    fn reply_if(&mut self, request: RequestId, answer: Option<Answer>) {
        if let Some(answer) = answer {
            self.reply(request, answer);
        }
    }
}

fn is_stale(result: &Result<StateName, JobRefused>) -> bool {
    matches!(result, Err(JobRefused::Rejected(Rejected::Stale { .. })))
}
