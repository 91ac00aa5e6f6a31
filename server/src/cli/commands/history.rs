//! `history`: what happened, what waited and how long it took, as lines of bars.

use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Sparkline, Widget};

use super::Session;
use crate::api::history::RANGES;
use crate::api::wire::{History, HistoryMark, HistorySeries};
use crate::cli::client::{Failure, query};
use crate::cli::out::{Column, Table, age, span};

/// Show counts, backlog and latencies over time.
///
/// A bar is a part of the range, the newest last; a dot stands where nothing is known. The figures
/// are those of the store: of all servers and workers, also of earlier ones.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass history
  windlass history --queue mail --range 24h
  windlass history --range 7d --json")]
pub(crate) struct HistoryArgs {
    /// Show one queue; the sum of all queues if not given.
    #[arg(long)]
    queue: Option<String>,
    /// Length of the time shown, up to now.
    #[arg(long, default_value = "1h",
        value_parser = PossibleValuesParser::new(RANGES.map(|range| range.name)))]
    range: String,
}

const COLUMNS: [Column; 5] = [
    Column::whole("SERIES"),
    Column::number("TOTAL"),
    Column::number("LAST"),
    Column::number("MOST"),
    Column::text("HISTORY"),
];
/// Bars of a line.
const BARS: usize = 50;
/// Marks that are listed, the latest.
const MARKS: usize = 10;

pub(crate) async fn run(session: &mut Session, args: &HistoryArgs) -> Result<ExitCode, Failure> {
    let asked = query(&[("queue", args.queue.as_deref()), ("range", Some(&args.range))]);
    let reply = session.client.get(&format!("/history{asked}")).await?;
    let out = &mut session.out;
    let found: History = reply.json()?;
    if out.json {
        out.line(&serde_json::json!(found).to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    out.table(&table(&found.series))?;
    let skip = found.marks.len().saturating_sub(MARKS);
    for HistoryMark { at, what, queue } in found.marks.iter().skip(skip) {
        let queue = queue.as_deref().unwrap_or_default();
        out.line(format!("{}  {what} {queue}", age(*at)).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(series: &HistorySeries) -> Table {
    let mut table = Table::new(&COLUMNS);
    for (name, counts) in [
        ("enqueued", &series.enqueued),
        ("done", &series.done),
        ("failed", &series.failed),
        ("retried", &series.retried),
    ] {
        let sums = parts(counts, |part| Some(part.iter().sum::<f64>()));
        let whole: Vec<Option<u64>> = sums.iter().map(|sum| sum.map(rounded)).collect();
        let total = rounded(counts.iter().sum()).to_string();
        table.row(&line(name, total, &whole, |count| count.to_string()));
    }
    let (number, length): (fn(u64) -> String, _) = (|count| count.to_string(), span);
    for (name, values, shown) in [
        ("queued", &series.queued, number),
        ("processing", &series.processing, number),
        ("oldest due", &series.oldest_age_ms, length),
        ("wait p50", &series.wait_p50_ms, length),
        ("wait p95", &series.wait_p95_ms, length),
        ("run p50", &series.run_p50_ms, length),
        ("run p95", &series.run_p95_ms, length),
    ] {
        let most = parts(values, |part| part.iter().flatten().max().copied());
        table.row(&line(name, String::new(), &most, shown));
    }
    table
}

fn line(
    name: &str,
    total: String,
    values: &[Option<u64>],
    shown: fn(u64) -> String,
) -> [String; 5] {
    let last = values.last().copied().flatten().map(shown).unwrap_or_default();
    let most = values.iter().flatten().max().copied().map(shown).unwrap_or_default();
    [name.into(), total, last, most, bars(values)]
}

/// The values of a range, put together for each bar.
fn parts<T, U>(values: &[T], join: impl Fn(&[T]) -> U) -> Vec<U> {
    let bars = BARS.min(values.len());
    let start = |bar: usize| bar * values.len() / bars;
    (0..bars).map(|bar| join(&values[start(bar)..start(bar + 1)])).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, rounded")]
fn rounded(count: f64) -> u64 {
    count.round() as u64
}

/// One bar for each value, as high as it is beside the greatest; a dot where there is none.
fn bars(values: &[Option<u64>]) -> String {
    let area = Rect::new(0, 0, u16::try_from(values.len()).unwrap_or(u16::MAX), 1);
    let mut buffer = Buffer::empty(area);
    Sparkline::default().absent_value_symbol("·").data(values).render(area, &mut buffer);
    buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_the_greatest_of_their_steps_and_dots_what_is_not_known() {
        assert_eq!(bars(&[None, Some(0), Some(4), Some(8)]), "· ▄█");
        let values: Vec<Option<u64>> = (0..300).map(|n| (n >= 150).then_some(n)).collect();
        let most = parts(&values, |part| part.iter().flatten().max().copied());
        assert_eq!((most.len(), most[24], most[25], most[49]), (50, None, Some(155), Some(299)));
        assert_eq!(parts(&[1_u64], <[u64]>::len), [1]);
        assert_eq!(parts(&[] as &[u64], <[u64]>::len), [] as [usize; 0]);
    }

    #[test]
    fn a_total_is_the_sum_of_all_steps() {
        let series = HistorySeries {
            enqueued: vec![0.4; 300],
            queued: vec![Some(7); 300],
            ..HistorySeries::default()
        };
        let text = table(&series).text(120, false);
        let enqueued: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(enqueued[..4], ["enqueued", "120", "2", "2"], "{text}");
        assert!(text.contains(&format!("7     7  {}", "█".repeat(50))), "{text}");
    }
}
