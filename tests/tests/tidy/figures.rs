//! Figures in the README are measured ones: each is in the report of the benchmarks, and the README
//! says of which commit.

use std::collections::BTreeSet;

use crate::Finding;

/// The section of the README that tells figures.
const SECTION: &str = "## How fast";

/// Cells with figures in that section that the report does not have; or that there are none at all.
pub(crate) fn unmeasured(readme: &str, report: &str) -> Vec<Finding> {
    let measured: BTreeSet<&str> = report.lines().flat_map(figures).collect();
    let (mut inside, mut all) = (false, 0);
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(readme.lines()) {
        if text.starts_with("## ") {
            inside = text == SECTION;
        }
        let shown: Vec<&str> = if inside { figures(text).collect() } else { Vec::new() };
        all += shown.len();
        for figure in shown.into_iter().filter(|figure| !measured.contains(figure)) {
            let what = format!("{figure} is not in bench/RESULTS.md: take figures from there");
            findings.push(Finding::new(line, what));
        }
    }
    match commit(report) {
        Some(commit) if readme.contains(&format!("commit `{commit}`")) => {}
        Some(commit) => {
            let what = format!("say that the figures are of commit `{commit}`");
            findings.push(Finding::new(1, what));
        }
        None => findings.push(Finding::new(1, "bench/RESULTS.md names no commit")),
    }
    if all == 0 {
        let what = format!("no section `{SECTION}` has figures from bench/RESULTS.md");
        findings.push(Finding::new(1, what));
    }
    findings
}

/// The commit of Windlass that the report measured.
fn commit(report: &str) -> Option<&str> {
    report.lines().find_map(|line| line.strip_prefix("| Windlass | ")?.strip_suffix(" |"))
}

/// The cells of a row of a table that are figures.
fn figures(row: &str) -> impl Iterator<Item = &str> {
    let cells = row.strip_prefix('|').into_iter().flat_map(|cells| cells.split('|'));
    cells.map(str::trim).filter(|cell| {
        cell.chars().any(|digit| digit.is_ascii_digit())
            && cell.chars().all(|digit| digit.is_ascii_digit() || "\u{202f}.".contains(digit))
    })
}

#[test]
fn a_figure_that_was_not_measured_is_found_in_that_section_only() {
    let report = "| Windlass | 5ee |\n| sqlite | 12\u{202f}345 | 0.81 |\n";
    let readme = "| a | 99 | commit `5ee` |\n## How fast\n| a | 12\u{202f}345 | 0.81 |\n\
        | b | 12\u{202f}346 |\n";
    let found = unmeasured(readme, report);
    assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
    let found = unmeasured(&readme.replace("5ee", "another"), report);
    assert_eq!(found.len(), 2, "it is of another commit");
    let found = unmeasured("commit `5ee`\n## Other\n| 7 |\n## How fast\nVery.\n", report);
    assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1], "there are none");
}
