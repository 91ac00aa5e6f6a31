//! The worker pool: long-lived tasks, each running one job at a time.
//!
//! A worker ends only when the queue of runs is closed or the pool shrinks. Whatever a handler
//! does (fail, panic, run too long, ignore the stop signal), its attempt is reported and its worker
//! goes on.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tracing::Instrument;
use windlass_core::machine::StopReason;
use windlass_core::{Failure, FailureKind, Verdict};

use crate::Context;
use crate::context::{Attempt, RunningJob};
use crate::handler::{Handler, Handlers};
use crate::metrics::End;
use crate::shared::Shared;
use crate::sync::lock;
use crate::testing::Ran;
use crate::writer::panic_text;

/// Changes the number of workers. Surplus workers end once they have nothing to run.
pub(crate) fn resize(shared: &Arc<Shared>, handlers: &Arc<Handlers>, workers: usize) {
    shared.workers.store(workers, Ordering::Relaxed);
    for worker in shared.slots.resize(workers) {
        tokio::spawn(run_worker(Arc::clone(shared), Arc::clone(handlers), worker));
    }
}

/// One worker. Panics of handlers are caught in `run_one`; after a panic of anything else (a clock,
/// a tracing subscriber) the worker is restarted, so that the pool never shrinks by it.
pub(crate) async fn run_worker(shared: Arc<Shared>, handlers: Arc<Handlers>, worker: usize) {
    loop {
        let mut working = Box::pin(work(&shared, &handlers, worker));
        let step = poll_fn(|cx| match caught(|| working.as_mut().poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(true),
            Err(_) => Poll::Ready(false),
        });
        if step.await {
            return;
        }
    }
}

/// Runs jobs until the worker has to end.
async fn work(shared: &Shared, handlers: &Handlers, worker: usize) {
    while let Some(running_job) = poll_fn(|cx| shared.slots.poll_next(worker, cx)).await {
        let job = &running_job.attempt().job;
        let span = tracing::info_span!(
            "attempt",
            job = job.id.get(),
            epoch = job.epoch.get(),
            attempt = job.attempts,
            kind = %job.kind,
            queue = %job.queue,
        );
        run_one(handlers, running_job).instrument(span).await;
        // Yield to other tasks even if no job ever waits.
        tokio::task::coop::consume_budget().await;
    }
}

async fn run_one(handlers: &Handlers, mut running_job: RunningJob) {
    let attempt = Arc::clone(running_job.attempt());
    let started = attempt.shared.clock.micros();
    let handler = handlers.get(&attempt.job.kind);
    // A run that was stopped before its start is not started. Kinds without a handler are not
    // claimed.
    let (Some(handler), None) = (handler, attempt.stop_reason()) else {
        log(None, attempt.stop_reason());
        return running_job.report(None);
    };
    running_job.begin();
    match &**handler {
        Handler::Async(run) => {
            let begun = caught(|| run(&attempt.payload, Context::new(Arc::clone(&attempt))));
            let verdict = match begun {
                Ok(Ok(running)) => drive(&attempt, running).await,
                Ok(Err(verdict)) | Err(verdict) => Some(verdict),
            };
            finish(&attempt, running_job, verdict, started);
        }
        Handler::Blocking(_) => {
            let handler = Arc::clone(handler);
            let span = tracing::Span::current();
            // The thread reports itself: it goes on running even if this task is dropped.
            let running = tokio::task::spawn_blocking(move || {
                let _entered = span.entered();
                let Handler::Blocking(run) = &*handler else { return };
                let context = Context::new(Arc::clone(&attempt));
                let verdict = caught(|| run(&attempt.payload, context));
                let verdict = verdict.unwrap_or_else(|panicked| panicked);
                finish(&attempt, running_job, Some(verdict), started);
            });
            let _ = running.await;
        }
    }
}

/// Runs a handler to its end, or until its grace after a stop signal is over (`None`).
async fn drive(
    attempt: &Attempt,
    mut running: Pin<Box<dyn Future<Output = Verdict> + Send>>,
) -> Option<Verdict> {
    let mut ended = poll_fn(|cx| match caught(|| running.as_mut().poll(cx)) {
        Ok(Poll::Ready(verdict)) | Err(verdict) => Poll::Ready(verdict),
        Ok(Poll::Pending) => Poll::Pending,
    });
    let first = tokio::select! {
        biased;
        verdict = &mut ended => Ok(verdict),
        reason = attempt.stopping() => Err(reason),
    };
    let verdict = match first {
        Ok(verdict) => Some(verdict),
        Err(reason) => {
            let clock = &attempt.shared.clock;
            let grace = clock.sleep(clock.now().mono.plus(attempt.grace(reason)));
            tokio::select! {
                biased;
                verdict = &mut ended => Some(verdict),
                () = grace => None,
            }
        }
    };
    // Dropping the future may panic; the verdict stays as it is.
    let _ = caught(|| drop(running));
    verdict
}

/// Reports the end of an attempt, and counts and logs it.
fn finish(attempt: &Attempt, running_job: RunningJob, verdict: Option<Verdict>, started: u64) {
    // An error or a release after the stop signal is a consequence of it: report the attempt as
    // stopped, and the machine decides by the reason of the stop whether it is charged.
    let stop_reason = attempt.stop_reason();
    let verdict = verdict.filter(|verdict| stop_reason.is_none() || !is_passing(verdict));
    let end = match &verdict {
        Some(Verdict::Complete { .. }) => End::Completed,
        Some(Verdict::Fail(failure)) if failure.kind == FailureKind::Panicked => End::Panicked,
        Some(Verdict::Fail(_)) => End::Failed,
        Some(Verdict::Snooze { .. }) => End::Snoozed,
        Some(Verdict::Release) | None => End::Stopped,
    };
    log(verdict.as_ref(), stop_reason);
    let shared = &attempt.shared;
    shared.task_figures.ended(end, shared.clock.micros().saturating_sub(started));
    if let Some(journal) = &shared.journal {
        lock(journal).push(Ran::of(attempt, verdict.as_ref()));
    }
    running_job.report(verdict);
}

/// Whether a verdict after the stop signal is a consequence of it. A handler's own report of a
/// timeout counts as final, because it says more than the stop signal.
fn is_passing(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Release => true,
        Verdict::Fail(failure) => failure.retryable && failure.kind != FailureKind::TimedOut,
        Verdict::Complete { .. } | Verdict::Snooze { .. } => false,
    }
}

fn log(verdict: Option<&Verdict>, stop_reason: Option<StopReason>) {
    match verdict {
        Some(Verdict::Complete { .. }) => tracing::debug!("attempt completed"),
        Some(Verdict::Fail(failure)) => {
            tracing::warn!(
                error = failure.error.as_str(),
                retryable = failure.retryable,
                "attempt failed"
            );
        }
        Some(Verdict::Snooze { delay }) => {
            tracing::debug!(delay_ms = delay.get(), "attempt snoozed");
        }
        Some(Verdict::Release) | None => tracing::info!(reason = ?stop_reason, "attempt stopped"),
    }
}

/// Calls user code, and turns a panic into a failure.
fn caught<R>(call: impl FnOnce() -> R) -> Result<R, Verdict> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = format!("the handler panicked: {}", panic_text(panic.as_ref()));
        // Dropping the panic's payload may panic again; the second payload is leaked.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        Verdict::Fail(Failure::new(&text).of_kind(FailureKind::Panicked).into())
    })
}
