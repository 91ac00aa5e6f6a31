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

    /// A number.
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

    /// The table as text: no line is wider than this.
    pub(crate) fn text(&self, width: u16, colour: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width + 2);
        table.set_truncation_indicator("…");
        if self.headed {
            table.set_header(self.columns.iter().map(|column| column.title));
        }
        for cells in &self.rows {
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
