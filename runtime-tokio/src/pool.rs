//! The worker pool: long-lived tasks, each running one job at a time.
//!
//! A worker leaves only when the line of runs is closed, or meant for fewer workers. Whatever a
//! handler does (fail, panic, run too long, ignore that it was told to stop), it ends as a report,
//! never as the end of a worker.

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

/// Makes the pool as large as it should be. Workers too many leave when they have nothing to run.
pub(crate) fn resize(shared: &Arc<Shared>, handlers: &Arc<Handlers>, workers: usize) {
    shared.workers.store(workers, Ordering::Relaxed);
    for worker in shared.slots.resize(workers) {
        tokio::spawn(keep_working(Arc::clone(shared), Arc::clone(handlers), worker));
    }
}

/// One worker, as long as there is work. Whatever handlers do is caught below; should anything else
/// panic (a clock, a subscriber of traces), the worker begins anew instead of being missed.
pub(crate) async fn keep_working(shared: Arc<Shared>, handlers: Arc<Handlers>, worker: usize) {
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

/// Runs jobs until there will be no more.
async fn work(shared: &Shared, handlers: &Handlers, worker: usize) {
    while let Some(duty) = poll_fn(|cx| shared.slots.poll_next(worker, cx)).await {
        let job = &duty.attempt().job;
        let span = tracing::info_span!(
            "attempt",
            job = job.id.get(),
            epoch = job.epoch.get(),
            attempt = job.attempts,
            kind = %job.kind,
            queue = %job.queue,
        );
        run_one(handlers, duty).instrument(span).await;
        // A worker whose jobs never wait lets others have their turn.
        tokio::task::coop::consume_budget().await;
    }
}

async fn run_one(handlers: &Handlers, duty: RunningJob) {
    let attempt = Arc::clone(duty.attempt());
    let started = attempt.shared.clock.micros();
    let handler = handlers.get(&attempt.job.kind);
    // A run that was told to stop before it began never begins. Kinds without a handler are not
    // claimed.
    let (Some(handler), None) = (handler, attempt.stop_reason()) else {
        return finish(&attempt, duty, None, started);
    };
    match &**handler {
        Handler::Async(run) => {
            let begun = caught(|| run(&attempt.payload, Context::new(Arc::clone(&attempt))));
            let verdict = match begun {
                Ok(Ok(running)) => drive(&attempt, running).await,
                Ok(Err(verdict)) | Err(verdict) => Some(verdict),
            };
            finish(&attempt, duty, verdict, started);
        }
        Handler::Blocking(_) => {
            let handler = Arc::clone(handler);
            let span = tracing::Span::current();
            // The thread reports by itself: it goes on running even if this task is dropped.
            let running = tokio::task::spawn_blocking(move || {
                let _entered = span.entered();
                let Handler::Blocking(run) = &*handler else { return };
                let context = Context::new(Arc::clone(&attempt));
                let verdict = caught(|| run(&attempt.payload, context));
                let verdict = verdict.unwrap_or_else(|panicked| panicked);
                finish(&attempt, duty, Some(verdict), started);
            });
            let _ = running.await;
        }
    }
}

/// Runs a handler to its end; or, once it is told to stop, for as long as it is given to end.
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
    // What a handler leaves behind may panic when it is dropped; it has said what it had to say.
    let _ = caught(|| drop(running));
    verdict
}

/// Reports what came of an attempt.
fn finish(attempt: &Attempt, duty: RunningJob, verdict: Option<Verdict>, started: u64) {
    // An error after a handler was told to stop is what being told to stop looks like from inside:
    // the machine knows why it was told, and whether that is to be charged.
    let told = attempt.stop_reason();
    let verdict = verdict.filter(|verdict| told.is_none() || !is_passing(verdict));
    let end = match &verdict {
        Some(Verdict::Complete { .. }) => End::Completed,
        Some(Verdict::Fail(failure)) if failure.kind == FailureKind::Panicked => End::Panicked,
        Some(Verdict::Fail(_)) => End::Failed,
        Some(Verdict::Snooze { .. }) => End::Snoozed,
        Some(Verdict::Release) | None => End::Stopped,
    };
    log(verdict.as_ref(), told);
    let shared = &attempt.shared;
    shared.task_figures.ended(end, shared.clock.micros().saturating_sub(started));
    if let Some(journal) = &shared.journal {
        lock(journal).push(Ran::of(attempt, verdict.as_ref()));
    }
    duty.report(verdict);
}

/// A handler that says itself that it ran too long was told so, and knows more about it.
fn is_passing(verdict: &Verdict) -> bool {
    let Verdict::Fail(failure) = verdict else { return false };
    failure.retryable && failure.kind != FailureKind::TimedOut
}

fn log(verdict: Option<&Verdict>, told: Option<StopReason>) {
    match verdict {
        Some(Verdict::Complete { .. }) => tracing::debug!("completed"),
        Some(Verdict::Fail(failure)) => {
            tracing::warn!(error = failure.error.as_str(), retryable = failure.retryable, "failed");
        }
        Some(Verdict::Snooze { delay }) => tracing::debug!(delay_ms = delay.get(), "snoozed"),
        Some(Verdict::Release) | None => tracing::info!(reason = ?told, "stopped"),
    }
}

/// Calls a user's code. A panic becomes the verdict it stands for.
fn caught<R>(call: impl FnOnce() -> R) -> Result<R, Verdict> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = format!("the handler panicked: {}", panic_text(panic.as_ref()));
        // What was thrown may itself panic when it is dropped; what that throws is kept.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        Verdict::Fail(Failure::new(&text).of_kind(FailureKind::Panicked).into())
    })
}
