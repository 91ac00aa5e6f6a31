//! Rounds become rows: the middle figure of each, and how Windlass does by it.

use serde_json::{Map, Value};

use crate::contestant::Contestant;

/// A figure of a queue, and whether more is better.
const FIGURES: [(&str, &str, bool); 8] = [
    ("one_per_s", "1 producer/s", true),
    ("many_per_s", "64 producers/s", true),
    ("bulk_per_s", "bulk/s", true),
    ("drain_per_s", "drain/s", true),
    ("lives_1_per_s", "lives/s", true),
    ("lives_4_per_s", "lives/s, 4 nodes", true),
    ("pickup_p50_us", "pickup p50 us", false),
    ("pickup_p99_us", "p99 us", false),
];

/// One queue in one setting.
pub(crate) type Row = Map<String, Value>;

/// The rows, Windlass first if it took part.
pub(crate) fn rows(scenario: &str, present: &[&Contestant], rounds: &[Vec<Row>]) -> Vec<Row> {
    let ours = present.iter().position(|one| one.name == "windlass");
    let ours = ours.and_then(|at| rounds.get(at));
    let mut rows = Vec::new();
    for (one, rounds) in present.iter().zip(rounds) {
        let Some(last) = rounds.last() else { continue };
        let mut row = Row::new();
        row.insert("scenario".into(), scenario.into());
        row.insert("peer".into(), one.name.into());
        row.insert("setting".into(), one.setting.into());
        row.insert("durability".into(), last.get("durability").cloned().unwrap_or_default());
        row.insert("rounds".into(), rounds.len().into());
        let stalls = rounds.iter().filter_map(|round| round.get("pickup_stalls")?.as_u64());
        row.insert("pickup_stalls".into(), stalls.sum::<u64>().into());
        for (key, _, more_is_better) in FIGURES {
            let figures = rounds.iter().map(|round| number(round, key)).collect();
            let Some(figure) = median(figures) else { continue };
            row.insert(key.into(), rounded(figure));
            let pairs = ours.into_iter().flatten().zip(rounds);
            let ratio = |(ours, theirs): (&Row, &Row)| {
                let (ours, theirs) = (number(ours, key)?, number(theirs, key)?);
                Some(if more_is_better { ours / theirs } else { theirs / ours })
            };
            if let Some(ratio) = median(pairs.map(ratio).collect()) {
                row.insert(format!("{key}_windlass_by_it"), hundredths(ratio));
            }
        }
        rows.push(row);
    }
    rows
}

fn number(row: &Row, key: &str) -> Option<f64> {
    row.get(key)?.as_f64().filter(|number| *number > 0.0)
}

fn median(figures: Vec<Option<f64>>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.into_iter().flatten().collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

#[expect(clippy::cast_possible_truncation, reason = "rates and microseconds fit")]
fn rounded(figure: f64) -> Value {
    (figure.round() as i64).into()
}

fn hundredths(ratio: f64) -> Value {
    ((ratio * 100.0).round() / 100.0).into()
}

/// A JSON line per row.
pub(crate) fn json(rows: &[Row]) -> String {
    let lines: Vec<String> =
        rows.iter().map(|row| Value::Object(row.clone()).to_string()).collect();
    lines.join("\n")
}

/// A table for people. In brackets: how many times better Windlass does.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut cells: Vec<Vec<String>> = Vec::new();
    let mut head = vec!["queue".to_owned(), "setting".to_owned()];
    head.extend(FIGURES.iter().map(|(_, name, _)| (*name).to_owned()));
    head.push("what is acknowledged".to_owned());
    cells.push(head);
    for row in rows {
        let word = |key: &str| row.get(key).and_then(Value::as_str).unwrap_or("?").to_owned();
        let mut line = vec![word("peer"), word("setting")];
        for (key, ..) in FIGURES {
            let figure = row.get(key).map_or("-".to_owned(), ToString::to_string);
            let ratio = row.get(&format!("{key}_windlass_by_it"));
            line.push(ratio.map_or(figure.clone(), |ratio| format!("{figure} ({ratio}x)")));
        }
        let stalls = row.get("pickup_stalls").and_then(Value::as_u64).unwrap_or(0);
        let stalled = format!("; {stalls} jobs were not picked up in 10 s");
        line.push(word("durability") + if stalls > 0 { &stalled } else { "" });
        cells.push(line);
    }
    let columns = cells.first().map_or(0, Vec::len);
    let width = |at: usize| cells.iter().map(|line| line[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let padded = |line: &Vec<String>| {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let lines: Vec<String> = cells.iter().map(padded).collect();
    format!("{}\n(…x): how many times better Windlass did in the same round", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::CONTESTANTS;

    fn round(rate: u64, pickup: u64) -> Row {
        let value = serde_json::json!({
            "durability": "synced", "one_per_s": rate, "pickup_p50_us": pickup
        });
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn a_ratio_is_of_one_round_and_above_one_where_windlass_is_better() {
        let present: Vec<&Contestant> = CONTESTANTS.iter().take(2).collect();
        let rounds = [vec![round(100, 10), round(10, 10)], vec![round(50, 20), round(5, 20)]];
        let rows = rows("peers", &present, &rounds);
        assert_eq!(rows[1]["one_per_s_windlass_by_it"], 2.0);
        assert_eq!(rows[1]["pickup_p50_us_windlass_by_it"], 2.0);
        assert!(rows[1].get("bulk_per_s").is_none());
        assert!(text(&rows).contains("(2.0x)"));
    }
}
