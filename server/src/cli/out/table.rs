//! Tables for people: one line per row, never wider than the terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, presets};

use super::escaped;

/// A table. Its cells are escaped when they are added.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    headed: bool,
}

/// A column: its title, and what happens to it when space is short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    title: &'static str,
    right: bool,
    shrinks: bool,
}

impl Column {
    /// Text that is always shown whole.
    pub(crate) const fn whole(title: &'static str) -> Self {
        Self { title, right: false, shrinks: false }
    }

    /// Aligned to the right, and never cut.
    pub(crate) const fn number(title: &'static str) -> Self {
        Self { title, right: true, shrinks: false }
    }

    /// Text that is cut when space is short.
    pub(crate) const fn text(title: &'static str) -> Self {
        Self { title, right: false, shrinks: true }
    }
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.into(), rows: Vec::new(), headed: true }
    }

    /// Whether the titles stand above it.
    pub(crate) fn headed(mut self, headed: bool) -> Self {
        self.headed = headed;
        self
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.iter().map(|cell| escaped(cell)).collect());
    }

    /// The rows as they are laid out: no cell is longer than can be shown.
    fn cut(&self, width: u16) -> impl Iterator<Item = Vec<&str>> {
        let width = usize::from(width);
        self.rows.iter().map(move |cells| cells.iter().map(|cell| start(cell, width)).collect())
    }

    /// The table as text: no line is wider than this.
    pub(crate) fn text(&self, width: u16, colour: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width + 2);
        table.set_truncation_indicator("…");
        if self.headed {
            table.set_header(self.columns.iter().map(|column| column.title));
        }
        for cells in self.cut(width) {
            let mut row = Row::from(cells);
            row.max_height(1);
            table.add_row(row);
        }
        for (column, known) in table.column_iter_mut().zip(&self.columns) {
            if !known.shrinks {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
            if known.right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = String::new();
        for (at, line) in table.lines().enumerate() {
            // Every cell has a space on either side; the outermost ones are not needed.
            let line = line.strip_prefix(' ').unwrap_or(&line).trim_end();
            match at {
                0 if colour && self.headed => drop(write!(text, "\u{1b}[1m{line}\u{1b}[0m")),
                _ => text.push_str(line),
            }
            text.push('\n');
        }
        text
    }
}

/// The beginning of a text, one character longer than can be shown, so that the cut is marked. The
/// layout takes time quadratic in the length of a word.
pub(crate) fn start(text: &str, width: usize) -> &str {
    text.char_indices().nth(width + 1).map_or(text, |(end, _)| &text[..end])
}

/// A text in the colour of a state.
pub(crate) fn coloured(text: &str, state: &str, colour: bool) -> String {
    let code = match state {
        "done" => "32",
        "failed" => "31",
        "processing" => "36",
        "cancelled" => "33",
        _ => return text.into(),
    };
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(detail: &str) -> Table {
        const COLUMNS: [Column; 3] =
            [Column::number("ID"), Column::whole("STATE"), Column::text("DETAIL")];
        let mut table = Table::new(&COLUMNS);
        table.row(&["42".into(), "queued".into(), detail.into()]);
        table
    }

    #[test]
    fn a_row_is_one_line_and_never_wider_than_the_terminal() {
        let long = "one two three four five six seven eight nine ten eleven twelve";
        let text = table(long).text(40, false);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("42  queued  one two") && text.contains('…'), "{text}");
        for detail in
            [long, "x\ny\u{1b}[2J", "", "\u{4e16}\u{754c}\u{4e16}\u{754c}\u{4e16}\u{754c}"]
        {
            for width in [20, 25, 40, 100] {
                let text = table(detail).text(width, false);
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= usize::from(width), "{width}:\n{text}");
                assert_eq!(text.lines().count(), 2, "{width}:\n{text}");
                assert!(!text.contains('\u{1b}'));
            }
        }
    }

    #[test]
    fn no_more_of_a_text_is_laid_out_than_can_be_shown() {
        let long = "x".repeat(1 << 20);
        let table = table(&long);
        let lengths: Vec<usize> = table.cut(40).flatten().map(str::len).collect();
        assert_eq!(lengths, [2, 6, 41]);
        let text = table.text(40, false);
        assert!(text.contains("queued  xxx") && text.contains('…'), "{text}");
        assert_eq!(start(&long, 40).len(), 41);
        assert_eq!(start("\u{4e16}\u{754c}", 0), "\u{4e16}");
        assert_eq!(start("short", 40), "short");
    }

    #[test]
    fn colour_is_for_terminals_alone() {
        assert!(table("x").text(40, true).starts_with("\u{1b}[1m"));
        assert!(!table("x").text(40, false).contains('\u{1b}'));
        assert_eq!(coloured("failed", "failed", true), "\u{1b}[31mfailed\u{1b}[0m");
        assert_eq!(coloured("failed", "failed", false), "failed");
    }
}
