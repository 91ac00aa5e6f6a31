//! The screen without a terminal: what is drawn, and what keys ask for.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_core::{Millis, Wall};

use super::draw;
use super::model::{Act, Key, Model, Pane, Seen};
use crate::api::wire::Time;
use crate::app::now;

fn counts(done: u64) -> Value {
    json!({"queued":3,"scheduled":1,"processing":2,"done":done,"failed":2,"cancelled":0})
}

/// Long ago, so that a slow test shows the same.
fn then() -> Value {
    let ago = Millis::minutes((90 * 24 + 12) * 60 + 30);
    json!(Time(Wall::new(now().get() - ago.get().cast_signed())))
}

fn job(id: u64, kind: &str, error: Option<&str>) -> Value {
    let retry = json!({"strategy":"fixed","initial_ms":1,"factor":null,"cap_ms":1,"jitter":0.0});
    json!({
        "id":id,"queue":"mail","kind":kind,"state":"processing","payload":null,"priority":0,
        "attempts":1,"max_retries":3,"generation":0,"timeout_ms":null,"retry":retry,
        "visibility_timeout_ms":30000,"idempotency_key":null,"worker":"w-1","lease_until":null,
        "run_at":then(),"created_at":then(),"updated_at":then(),"started_at":then(),
        "finished_at":then(),"last_error":error,"result":null,"progress":null,
    })
}

fn rates() -> Value {
    json!({
        "window_ms":60_000,"enqueued_per_s":0.0,"started_per_s":0.0,"done_per_s":0.0,
        "failed_per_s":0.0,
    })
}

fn queue(name: &str, paused: bool, done: u64) -> Value {
    let counts = counts(done);
    json!({
        "name":name,"paused":paused,"counts":counts,"retrying":0,"oldest_ready_age_ms":65_000,
        "settings":{},"rates":rates(),
    })
}

/// What an answer with this text is read as.
fn take<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn seen(done: u64) -> Seen {
    let worker = json!({
        "id":"w-1","host":"here","pid":7,"kind":"process","started_at":then(),
        "last_heartbeat":then(),"alive":true,"stopping":false,"slots":4,"running":[1,2],
        "running_total":2,
    });
    let status = json!({
        "version":"1","now":then(),"health":"good","counts":counts(done),
        "retrying":0,"oldest_ready_age_ms":65_000,"next_due":null,
        "queues":{"total":2,"paused":["a/b"]},
        "workers":{"alive":1,"stale":0,"running":2},"rates":rates(),
        "store":{"path":"jobs.db","bytes":1,"wal_bytes":0},
    });
    Seen {
        status: take(&status),
        queues: take(&json!({"queues":[queue("mail", false, done), queue("a/b", true, done)]})),
        workers: take(&json!({ "workers": [worker], "next": null })),
        running: vec![take(&job(1, "email", None)), take(&job(2, "sms", None))],
        dead: vec![take(&job(9, "email", Some("no \u{1b}[31mroute")))],
    }
}

/// A screen as lines of text.
fn drawn(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::screen(frame, model)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width));
    let lines = rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>());
    lines.map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn the_screen_shows_queues_runs_dead_letters_and_workers() {
    let start = Instant::now();
    let mut model = Model::new(seen(100), start);
    for (second, done) in (1..).zip([110, 130, 170, 170, 400]) {
        model.look(seen(done), start + Duration::from_secs(second));
    }
    assert_eq!(model.rates, [10, 20, 40, 0, 230]);
    insta::assert_snapshot!(drawn(&model, 100, 32));
}

#[test]
fn a_small_terminal_or_a_tiny_one_is_drawn_on_too() {
    let model = Model::new(seen(1), Instant::now());
    assert!(drawn(&model, 80, 24).contains("mail"));
    for (width, height) in [(1, 1), (10, 3), (20, 8), (500, 4)] {
        drawn(&model, width, height);
    }
}

#[test]
fn a_long_error_is_drawn_no_longer_than_the_screen() {
    let mut long = seen(1);
    long.dead = vec![take(&job(9, "email", Some(&"x".repeat(1 << 20))))];
    let screen = drawn(&Model::new(long, Instant::now()), 100, 32);
    assert!(screen.contains("xxx") && screen.contains("workers"), "{screen}");
    assert_eq!(draw::shown(&"x".repeat(1 << 20), 100).len(), 101);
    assert_eq!(draw::shown("no \u{1b}[31mroute", 100), "no \\u{1b}[31mroute");
}

#[test]
fn lines_go_to_the_tables_that_have_rows() {
    assert_eq!(draw::heights([0, 50, 0, 0], 40), [3, 31, 3, 3]);
    assert_eq!(draw::heights([2, 1, 0, 1], 40), [5, 4, 3, 4]);
    assert_eq!(draw::heights([50, 50, 50, 50], 22), [6, 6, 5, 5]);
    assert_eq!(draw::heights([9, 9, 9, 9], 0), [0; 4]);
}

#[test]
fn keys_act_on_the_chosen_row_of_the_chosen_table() {
    let mut model = Model::new(seen(1), Instant::now());
    assert_eq!(model.press(Key::Pause), Act::Post("/queues/mail/pause".into()));
    assert_eq!(model.press(Key::Down), Act::Nothing);
    assert_eq!(model.press(Key::Down), Act::Nothing);
    assert_eq!(model.press(Key::Pause), Act::Post("/queues/a%2Fb/resume".into()));
    assert_eq!(model.press(Key::Retry), Act::Nothing);
    assert!(model.message.as_deref().is_some_and(|text| text.contains("dead letter")));
    model.press(Key::Next);
    assert_eq!(model.pane, Pane::Running);
    model.press(Key::Next);
    assert_eq!(model.press(Key::Retry), Act::Post("/dlq/9/retry".into()));
    model.press(Key::Previous);
    model.press(Key::Previous);
    model.press(Key::Previous);
    assert_eq!(model.pane, Pane::Workers);
    assert_eq!(model.press(Key::End), Act::End);
}

#[test]
fn a_job_is_cancelled_only_if_the_answer_is_yes() {
    let mut model = Model::new(seen(1), Instant::now());
    model.press(Key::Next);
    model.press(Key::Down);
    assert_eq!(model.press(Key::Cancel), Act::Nothing);
    assert!(model.message.as_deref().is_some_and(|text| text.contains("cancel job 2")));
    assert_eq!(model.press(Key::No), Act::Nothing);
    assert_eq!(model.press(Key::Yes), Act::Nothing);
    // The job that was asked about is meant, wherever it stands by then.
    model.press(Key::Cancel);
    let mut later = seen(2);
    later.running.remove(0);
    model.look(later, Instant::now());
    assert_eq!(model.press(Key::Yes), Act::Post("/jobs/2/cancel".into()));
}

#[test]
fn rows_that_went_away_are_not_chosen_and_a_purge_is_no_negative_rate() {
    let start = Instant::now();
    let mut model = Model::new(seen(100), start);
    model.press(Key::Down);
    let mut later = seen(10);
    later.queues.queues.pop();
    model.look(later, start + Duration::from_secs(1));
    assert_eq!(model.rates, [0]);
    assert_eq!(model.press(Key::Pause), Act::Post("/queues/mail/pause".into()));
}
