//! The screen, drawn from the model alone. Texts from a store are escaped.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, TableState};

use super::model::{Model, Pane};
use crate::api::wire::Job;
use crate::cli::out::{age, escaped, span, start};

/// Draws the header, the rates and the tables.
pub(super) fn screen(frame: &mut Frame<'_>, model: &Model) {
    let height = frame.area().height;
    let graph = if height >= 30 { 5 } else { 0 };
    let [a, b, c, d] =
        heights(Pane::ALL.map(|pane| model.len(pane)), height.saturating_sub(graph + 3));
    let [head, graph, queues, running, dead, workers, _, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(graph),
        Constraint::Length(a),
        Constraint::Length(b),
        Constraint::Length(c),
        Constraint::Length(d),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(model)), head);
    throughput(frame, model, graph);
    self::queues(frame, model, queues);
    self::running(frame, model, running);
    self::dead(frame, model, dead);
    self::workers(frame, model, workers);
    let keys = "Tab next table · ↑↓ select · p pause/resume · r retry · c cancel · q quit";
    let foot_text = model.message.as_deref().map_or_else(|| keys.into(), escaped);
    frame.render_widget(Paragraph::new(foot_text), foot);
}

/// The lines of a table without rows: its borders and its titles.
const EMPTY: u16 = 3;

/// Divides the lines of the screen among tables with this many rows: no table gets more than it can
/// fill, and where lines are short the tables share them evenly.
pub(super) fn heights<const N: usize>(rows: [usize; N], lines: u16) -> [u16; N] {
    let wanted = rows.map(|rows| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(EMPTY));
    let mut heights = [0; N];
    for _ in 0..lines {
        let short = (0..N).filter(|at| heights[*at] < wanted[*at]);
        let Some(least) = short.min_by_key(|at| heights[*at]) else { break };
        heights[least] += 1;
    }
    heights
}

fn summary(model: &Model) -> Vec<Line<'static>> {
    let status = &model.seen.status;
    let counts = status.counts;
    let oldest = status.oldest_ready_age_ms;
    let oldest = oldest.map_or_else(String::new, |age| format!(", oldest due for {}", span(age)));
    vec![
        Line::from(format!(
            "windlass  health {}  finished {}/s{oldest}",
            escaped(&status.health),
            model.rates.back().copied().unwrap_or_default(),
        )),
        Line::from(format!(
            "{} queued  {} scheduled  {} processing  {} done  {} failed  {} cancelled",
            counts.queued,
            counts.scheduled,
            counts.processing,
            counts.done,
            counts.failed,
            counts.cancelled,
        )),
    ]
}

fn throughput(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let block = Block::bordered().title("finished per second");
    let width = usize::from(area.width.saturating_sub(2));
    let skip = model.rates.len().saturating_sub(width);
    let rates: Vec<u64> = model.rates.iter().skip(skip).copied().collect();
    frame.render_widget(Sparkline::default().block(block).data(&rates), area);
}

/// A table with its title, its rows and the chosen one.
fn table<const N: usize>(
    frame: &mut Frame<'_>,
    (model, pane, area): (&Model, Pane, Rect),
    title: &str,
    columns: [(&'static str, Constraint); N],
    rows: Vec<[String; N]>,
) {
    let chosen = model.pane == pane;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let block = Block::bordered().title(format!("{title} ({})", rows.len()));
    let block = if chosen { block.border_style(bold) } else { block };
    let rows = rows.into_iter().map(|row| Row::new(row.map(|cell| shown(&cell, area.width))));
    let table = Table::new(rows, columns.map(|(_, width)| width))
        .header(Row::new(columns.map(|(name, _)| name)).style(bold))
        .block(block)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(chosen.then_some(model.row(pane)));
    frame.render_stateful_widget(table, area, &mut state);
}

/// A cell as it is drawn: no longer than the whole width, before it is escaped.
pub(super) fn shown(cell: &str, width: u16) -> String {
    escaped(start(cell, usize::from(width)))
}

fn queues(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rows = model.seen.queues.queues.iter().map(|queue| {
        let counts = queue.counts;
        let paused = if queue.paused { "paused" } else { "" };
        [
            queue.name.clone(),
            counts.queued.to_string(),
            counts.scheduled.to_string(),
            counts.processing.to_string(),
            counts.done.to_string(),
            counts.failed.to_string(),
            queue.oldest_ready_age_ms.map(span).unwrap_or_default(),
            paused.into(),
        ]
    });
    let number = Constraint::Length(10);
    let columns = [
        ("QUEUE", Constraint::Fill(1)),
        ("QUEUED", number),
        ("SCHEDULED", number),
        ("RUNNING", number),
        ("DONE", number),
        ("FAILED", number),
        ("OLDEST", number),
        ("", Constraint::Length(6)),
    ];
    table(frame, (model, Pane::Queues, area), "queues", columns, rows.collect());
}

fn running(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let since = |job: &Job| job.started_at.map(age).unwrap_or_default();
    let rows = model.seen.running.iter().map(|job| {
        let worker = job.worker.clone().unwrap_or_default();
        [job.id.to_string(), job.queue.clone(), job.kind.clone(), since(job), worker]
    });
    let columns = [
        ("JOB", Constraint::Length(10)),
        ("QUEUE", Constraint::Fill(1)),
        ("KIND", Constraint::Fill(1)),
        ("STARTED", Constraint::Length(12)),
        ("WORKER", Constraint::Fill(2)),
    ];
    table(frame, (model, Pane::Running, area), "running", columns, rows.collect());
}

fn dead(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let failed = |job: &Job| job.finished_at.map(age).unwrap_or_default();
    let rows = model.seen.dead.iter().map(|job| {
        let error = job.last_error.clone().unwrap_or_default();
        [job.id.to_string(), job.queue.clone(), job.kind.clone(), failed(job), error]
    });
    let columns = [
        ("JOB", Constraint::Length(10)),
        ("QUEUE", Constraint::Fill(1)),
        ("KIND", Constraint::Fill(1)),
        ("FAILED", Constraint::Length(12)),
        ("ERROR", Constraint::Fill(3)),
    ];
    table(frame, (model, Pane::Dead, area), "newest dead letters", columns, rows.collect());
}

fn workers(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rows = model.seen.workers.workers.iter().map(|worker| {
        let pid = worker.pid.map(|pid| format!(" {pid}")).unwrap_or_default();
        [
            worker.id.clone(),
            format!("{}{pid}", worker.host),
            worker.kind.to_string(),
            worker.state().into(),
            age(worker.last_heartbeat),
            worker.running_total.to_string(),
        ]
    });
    let columns = [
        ("WORKER", Constraint::Fill(2)),
        ("HOST", Constraint::Fill(1)),
        ("KIND", Constraint::Length(8)),
        ("", Constraint::Length(8)),
        ("HEARTBEAT", Constraint::Length(12)),
        ("RUNNING", Constraint::Length(8)),
    ];
    table(frame, (model, Pane::Workers, area), "workers", columns, rows.collect());
}
