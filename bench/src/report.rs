//! `RESULTS.md`: tables made from lines, without rounding.

use std::fmt::Write as _;

use serde_json::Value;

use crate::all::Run;
use crate::sections::Section;

/// Writes the report.
pub(crate) fn write(
    about: &[(String, String)],
    results: &[(&Section, Vec<Run>)],
    quick: bool,
) -> String {
    let mut text = String::from(
        "# Results\n\nWritten by one command; not to be edited by hand:\n\n```sh\n\
         cargo build --release\n\
         cargo run --release --manifest-path bench/peers/Cargo.toml -- --build-only\n\
         cargo run --release -p windlass-bench -- all\n```\n\n\
         Figures of different sections are from different minutes; a ratio is from one run, in \
         which both sides took turns.\n\n",
    );
    if quick {
        text.push_str(
            "**Written with `--quick`: the sizes are tiny and the figures mean nothing.**\n\n",
        );
    }
    text.push_str("## Machine and versions\n\n| | |\n|---|---|\n");
    for (name, value) in about {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    for (section, runs) in results {
        let _ = write!(text, "\n## {}\n\n{}\n\n```sh\n", section.title, section.says);
        for run in runs {
            let _ = writeln!(text, "{}", run.command);
        }
        text.push_str("```\n\n");
        text.push_str(&table(section, runs));
        for run in runs {
            if let Err(error) = &run.lines {
                let _ = writeln!(text, "\nNot measured: `{}`: {error}", run.command);
            }
        }
        for plot in section.plots {
            let _ = writeln!(text, "\n![{}](results/{}.svg)", plot.title, plot.file);
        }
    }
    let seconds: f64 = results.iter().flat_map(|(_, runs)| runs).map(|run| run.seconds).sum();
    let _ =
        writeln!(text, "\nAll of it took {seconds:.0} s. The lines are in `results/lines.jsonl`.");
    text
}

fn table(section: &Section, runs: &[Run]) -> String {
    let heads: Vec<&str> = section.columns.iter().map(|(_, head)| *head).collect();
    let rules = vec!["---"; heads.len()];
    let mut text = format!("| {} |\n|{}|\n", heads.join(" | "), rules.join("|"));
    let lines = runs.iter().flat_map(|run| run.lines.iter().flatten());
    for line in lines.filter(|line| line["scenario"] == section.scenario) {
        let cells: Vec<String> = section.columns.iter().map(|(key, _)| cell(&line[*key])).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(word) => word.replace('|', "/"),
        Value::Number(number) => number.as_u64().map_or_else(|| number.to_string(), grouped),
        other => other.to_string(),
    }
}

/// A number with a thin gap between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::SECTIONS;

    #[test]
    fn a_table_holds_the_lines_of_its_scenario_only() {
        let section = SECTIONS.iter().find(|section| section.name == "soak").unwrap();
        let line = |text: &str| serde_json::from_str(text).unwrap();
        let lines = vec![
            line(r#"{"scenario":"soak-sample","ms":1}"#),
            line(r#"{"scenario":"soak","store":"sqlite","done":1234567,"flat":"yes"}"#),
        ];
        let run = Run { command: "soak".into(), lines: Ok(lines), seconds: 1.0 };
        let table = table(section, &[run]);
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.contains("1\u{202f}234\u{202f}567"), "{table}");
        assert!(table.contains("| – |"), "{table}");
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let section = &SECTIONS[0];
        let run = Run { command: "x".into(), lines: Err("no binary".into()), seconds: 0.0 };
        let text = write(&[("cores".into(), "2".into())], &[(section, vec![run])], true);
        assert!(text.contains("Not measured: `x`: no binary"), "{text}");
        assert!(text.contains("the figures mean nothing"), "{text}");
    }
}
