//! The table of states and events, made by asking `transition` about one sample job per cell.
//!
//! A person reads it as the specification: it is a snapshot in the tests, and a part of
//! `docs/STATE_MACHINE.md`. Nothing here knows what the answers should be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use windlass_core::GroupId;
use windlass_core::{
    Claim, Delay, Epoch, Event, Failure, Gate, Job, JobId, JobTimeout, Kind, LastVerdict, Lease,
    LeaseLength, MaxRetries, Millis, Priority, QueueName, Rank, Rejected, RetryPolicy, State, Step,
    Strategy, Verdict, View, Wall, WorkerId, transition,
};

const NOW: Wall = Wall::new(1_000_000);
const BACKOFF_MS: u64 = 5_000;
const DELAY_MS: u64 = 7_000;
const EPOCH: u64 = 3;
const IN_RANGE: &str = "the sample stays within bounds";

/// A row: an event, and what is special about the job it meets.
struct Row {
    title: &'static str,
    act: Act,
    /// Its attempts are used up.
    used_up: bool,
    /// What it waits for, its instant or the end of its lease, has passed.
    passed: bool,
}

#[derive(Clone, Copy)]
enum Act {
    FallDue,
    Claim(Gate),
    Complete(Token),
    Fail { retryable: bool, token: Token },
    Snooze(Token),
    Release(Token),
    Heartbeat(Token),
    HeartbeatTimedOut,
    Expire { stepped: bool },
    ExpireTimedOut,
    ExpireDead,
    Cancel,
    Replay,
}

/// Which token a report carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    /// Of the latest claim; where the job is not running, it has given another verdict.
    Latest,
    /// Of the latest claim, which has given this very verdict.
    Repeated,
    /// Of an earlier claim.
    Stale,
}

const fn row(title: &'static str, act: Act) -> Row {
    Row { title, act, used_up: false, passed: false }
}

const fn passed(title: &'static str, act: Act) -> Row {
    Row { title, act, used_up: false, passed: true }
}

const fn used_up(title: &'static str, act: Act) -> Row {
    Row { title, act, used_up: true, passed: true }
}

const fn fail(retryable: bool, token: Token) -> Act {
    Act::Fail { retryable, token }
}

const ROWS: &[Row] = &[
    row("fall due, too early", Act::FallDue),
    passed("fall due", Act::FallDue),
    row("claim", Act::Claim(Gate::Open)),
    passed("claim, its instant has passed", Act::Claim(Gate::Open)),
    passed("claim, queue paused", Act::Claim(Gate::Paused)),
    passed("claim, concurrency full", Act::Claim(Gate::Full)),
    used_up("claim, attempts used up", Act::Claim(Gate::Open)),
    row("complete", Act::Complete(Token::Latest)),
    row("complete, repeated", Act::Complete(Token::Repeated)),
    row("complete, stale token", Act::Complete(Token::Stale)),
    row("fail", fail(true, Token::Latest)),
    used_up("fail, last attempt", fail(true, Token::Latest)),
    row("fail, repeated", fail(true, Token::Repeated)),
    row("fail, stale token", fail(true, Token::Stale)),
    row("fail for good", fail(false, Token::Latest)),
    row("fail for good, repeated", fail(false, Token::Repeated)),
    row("fail for good, stale token", fail(false, Token::Stale)),
    row("snooze", Act::Snooze(Token::Latest)),
    row("snooze, repeated", Act::Snooze(Token::Repeated)),
    row("snooze, stale token", Act::Snooze(Token::Stale)),
    row("release", Act::Release(Token::Latest)),
    row("release, repeated", Act::Release(Token::Repeated)),
    row("release, stale token", Act::Release(Token::Stale)),
    row("heartbeat", Act::Heartbeat(Token::Latest)),
    passed("heartbeat, lease run out", Act::Heartbeat(Token::Latest)),
    row("heartbeat, attempt timed out", Act::HeartbeatTimedOut),
    row("heartbeat, stale token", Act::Heartbeat(Token::Stale)),
    row("expire, lease running", Act::Expire { stepped: false }),
    passed("expire, lease run out", Act::Expire { stepped: false }),
    passed("expire, lease run out, clock stepped", Act::Expire { stepped: true }),
    used_up("expire, lease run out, last attempt", Act::Expire { stepped: false }),
    passed("expire, attempt timed out", Act::ExpireTimedOut),
    used_up("expire, attempt timed out, last attempt", Act::ExpireTimedOut),
    row("expire, holder dead", Act::ExpireDead),
    row("cancel", Act::Cancel),
    row("replay", Act::Replay),
];

/// The whole table, as aligned markdown.
pub fn table() -> String {
    let titles = ["event"].into_iter().chain(View::ALL.map(View::as_str));
    let mut lines: Vec<Vec<String>> = vec![titles.map(str::to_owned).collect()];
    for row in ROWS {
        let cells = View::ALL.map(|view| cell(row, view));
        lines.push([row.title.to_owned()].into_iter().chain(cells).collect());
    }
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            write!(text, "| {cell:width$} ").expect("a string takes every text");
        }
        text.push_str("|\n");
        if number == 0 {
            let dashes = widths.iter().map(|width| "-".repeat(width + 2));
            writeln!(text, "|{}|", dashes.collect::<Vec<String>>().join("|"))
                .expect("a string takes every text");
        }
    }
    text
}

/// The moves of the table as plain text: a line for each pair of states, with its events.
pub fn diagram() -> String {
    let mut edges: BTreeMap<(usize, usize), BTreeSet<&'static str>> = BTreeMap::new();
    for row in ROWS {
        for view in View::ALL {
            let Some(job) = sample(row, view) else { continue };
            if let Ok(Step::Moved(next)) = ask(row.act, &job) {
                let edge = (view.index(), next.state.view().index());
                edges.entry(edge).or_default().insert(word(row.act));
            }
        }
    }
    let new = "(new)".to_owned();
    let mut lines = vec![
        (new.clone(), View::Queued.to_string(), "enqueue".to_owned()),
        (new, View::Scheduled.to_string(), "enqueue for later".to_owned()),
    ];
    lines.extend(edges.into_iter().map(|((from, to), words)| {
        let words: Vec<&str> = words.into_iter().collect();
        (View::ALL[from].to_string(), View::ALL[to].to_string(), words.join(", "))
    }));
    let line = |(from, to, words)| format!("{from:<10} → {to:<10}  {words}\n");
    lines.into_iter().map(line).collect()
}

fn cell(row: &Row, view: View) -> String {
    match sample(row, view) {
        None => "–".to_owned(),
        Some(job) => match ask(row.act, &job) {
            Ok(Step::Moved(next)) => describe(&job, &next),
            Ok(Step::Repeated(answer)) if is_report(row.act) => {
                format!("same answer again: {answer}")
            }
            Ok(Step::Repeated(answer)) => format!("nothing to do: already {answer}"),
            Err(rejected) => refusal(&rejected).to_owned(),
        },
    }
}

fn refusal(rejected: &Rejected) -> &'static str {
    match rejected {
        Rejected::Stale { .. } => "refused: stale",
        Rejected::Illegal { .. } => "refused: illegal",
        Rejected::NotDue { .. } => "refused: not due",
        Rejected::QueuePaused => "refused: queue paused",
        Rejected::ConcurrencyFull => "refused: concurrency full",
        Rejected::KindFull => "refused: kind full",
        Rejected::RateLimited { .. } => "refused: rate limited",
        Rejected::AttemptsUsedUp { .. } => "refused: attempts used up",
        Rejected::NotExpired { .. } => "refused: lease still runs",
    }
}

/// How a job changed, in few words.
fn describe(before: &Job, after: &Job) -> String {
    let mut text = match (before.state.view(), after.state.view()) {
        (from, to) if from == to => format!("stays {to}"),
        (_, to) => format!("→ {to}"),
    };
    let was_waiting = matches!(before.state, State::Queued { .. });
    let run_in = after.run_at.get() - NOW.get();
    let place = match after.state {
        State::Queued { .. } if was_waiting => "",
        State::Queued { .. } if run_in == 0 => " at once",
        State::Queued { .. } if after.run_at == before.run_at => " in its old place",
        State::Queued { .. } if run_in.unsigned_abs() == BACKOFF_MS => " after the backoff",
        State::Queued { .. } if run_in.unsigned_abs() == DELAY_MS => " after the delay",
        State::Queued { .. } => " at another time",
        _ => "",
    };
    text.push_str(place);
    text.push_str(match i64::from(after.attempts) - i64::from(before.attempts) {
        0 => "",
        1 => ", attempts+1",
        _ if after.generation > before.generation => ", attempts 0",
        -1 => ", attempts−1",
        _ => ", attempts changed",
    });
    text.push_str(match after.epoch.get() - before.epoch.get() {
        0 => "",
        1 => ", epoch+1",
        _ => ", epoch changed",
    });
    text.push_str(if after.generation > before.generation { ", generation+1" } else { "" });
    text.push_str(match (before.lease(), after.lease()) {
        (None, Some(_)) => ", lease set",
        (Some(old), Some(new)) if old.until < new.until => ", lease extended",
        _ => "",
    });
    text
}

/// The job, its attempt begun longer ago than it may run.
fn timed_out(job: &Job) -> Job {
    let timeout = JobTimeout::new(1_000).expect(IN_RANGE);
    let started_at = Some(NOW.minus(timeout.millis()));
    Job { timeout: Some(timeout), started_at, ..job.clone() }
}

fn ask(act: Act, job: &Job) -> Result<Step, Rejected> {
    let worker = WorkerId::new("worker").expect(IN_RANGE);
    let settle = |token: Token, verdict: &Verdict| {
        transition(job, Event::Settle { epoch: epoch(token), verdict }, NOW)
    };
    match act {
        Act::FallDue => transition(job, Event::FallDue, NOW),
        Act::Claim(gate) => transition(
            job,
            Event::Claim(&Claim { worker, length: None, stop_grace: Millis::ZERO, gate }),
            NOW,
        ),
        Act::Complete(token) => settle(token, &Verdict::Complete { result: None }),
        Act::Fail { retryable, token } => {
            let failure = Failure { retryable, ..Failure::new("it broke") };
            settle(token, &Verdict::Fail(Box::new(failure)))
        }
        Act::Snooze(token) => {
            settle(token, &Verdict::Snooze { delay: Delay::new(DELAY_MS).expect(IN_RANGE) })
        }
        Act::Release(token) => settle(token, &Verdict::Release),
        Act::Heartbeat(token) => {
            let (epoch, stop_grace) = (epoch(token), Millis::ZERO);
            let (extend, trusted_since) = (None, None);
            let event = Event::Heartbeat { epoch, extend, stop_grace, trusted_since };
            transition(job, event, NOW)
        }
        Act::Expire { stepped } => {
            let trusted_since = stepped.then_some(NOW);
            transition(job, Event::Expire { trusted_since, dead: false }, NOW)
        }
        Act::HeartbeatTimedOut => ask(Act::Heartbeat(Token::Latest), &timed_out(job)),
        Act::ExpireTimedOut => ask(Act::Expire { stepped: false }, &timed_out(job)),
        Act::ExpireDead => transition(job, Event::Expire { trusted_since: None, dead: true }, NOW),
        Act::Cancel => transition(job, Event::Cancel, NOW),
        Act::Replay => transition(job, Event::Replay, NOW),
    }
}

fn epoch(token: Token) -> Epoch {
    Epoch::new(if token == Token::Stale { EPOCH - 1 } else { EPOCH })
}

/// The job a cell is about; none where there is no such job.
fn sample(row: &Row, view: View) -> Option<Job> {
    // To the millisecond: what ends now has passed.
    let wait = i64::from(!row.passed);
    let last_verdict = match token(row.act) {
        Some(Token::Repeated) => Some(spent_on(row.act, view)?),
        Some(Token::Latest) => Some(spent_otherwise(row.act)),
        _ => None,
    };
    let state = match view {
        View::Queued => State::Queued { ready: true, last_verdict },
        View::Scheduled => State::Queued { ready: false, last_verdict },
        View::Processing => State::Processing(Lease {
            worker: WorkerId::new("worker").expect(IN_RANGE),
            until: Wall::new(NOW.get() + wait),
            length: LeaseLength::DEFAULT,
        }),
        View::Done => State::Done { finished_at: NOW },
        View::Failed => State::Failed { finished_at: NOW, last_verdict, group: GroupId::LOST },
        View::Cancelled => State::Cancelled { finished_at: NOW, last_verdict },
    };
    let max_retries = MaxRetries::new(2).expect(IN_RANGE);
    let scheduled_at = Wall::new(NOW.get() + wait);
    let backoff = Millis::new(BACKOFF_MS);
    let run_at = if view == View::Scheduled { scheduled_at } else { Wall::new(0) };
    Some(Job {
        id: JobId::FIRST,
        queue: QueueName::default(),
        kind: Kind::default(),
        priority: Priority::DEFAULT,
        rank: Rank::new(Priority::DEFAULT, run_at, JobId::FIRST),
        state,
        attempts: if row.used_up { 3 } else { 1 },
        max_retries,
        epoch: Epoch::new(EPOCH),
        generation: 0,
        run_at,
        timeout: None,
        visibility_timeout: LeaseLength::DEFAULT,
        retry: RetryPolicy::new(Strategy::Fixed, backoff, backoff, 0).expect(IN_RANGE),
        idempotency_key: None,
        payload_bytes: 0,
        created_at: Wall::new(0),
        updated_at: Wall::new(0),
        started_at: Some(Wall::new(0)),
    })
}

fn token(act: Act) -> Option<Token> {
    match act {
        Act::Complete(token)
        | Act::Fail { token, .. }
        | Act::Snooze(token)
        | Act::Release(token)
        | Act::Heartbeat(token) => Some(token),
        _ => None,
    }
}

fn is_report(act: Act) -> bool {
    token(act).is_some()
}

/// What the latest token has given if it has given this verdict; none if the job cannot be in this
/// view then. A running job has a token that has given none.
fn spent_on(act: Act, view: View) -> Option<LastVerdict> {
    let dead = view == View::Failed;
    match act {
        _ if view == View::Processing => None,
        Act::Complete(_) => (view == View::Done).then_some(LastVerdict::Completed),
        _ if view == View::Done => None,
        Act::Fail { retryable: true, .. } => {
            Some(if dead { LastVerdict::Exhausted } else { LastVerdict::Retried })
        }
        Act::Fail { retryable: false, .. } => Some(LastVerdict::Permanent),
        Act::Snooze(_) => (!dead).then_some(LastVerdict::Snoozed),
        Act::Release(_) => (!dead).then_some(LastVerdict::Released),
        _ => None,
    }
}

fn spent_otherwise(act: Act) -> LastVerdict {
    if matches!(act, Act::Snooze(_)) { LastVerdict::Released } else { LastVerdict::Snoozed }
}

fn word(act: Act) -> &'static str {
    match act {
        Act::FallDue => "fall due",
        Act::Claim(_) => "claim",
        Act::Complete(_) => "complete",
        Act::Fail { retryable: true, .. } => "fail",
        Act::Fail { retryable: false, .. } => "fail for good",
        Act::Snooze(_) => "snooze",
        Act::Release(_) => "release",
        Act::Heartbeat(_) | Act::HeartbeatTimedOut => "heartbeat",
        Act::Expire { .. } | Act::ExpireTimedOut | Act::ExpireDead => "expire",
        Act::Cancel => "cancel",
        Act::Replay => "replay",
    }
}
