//! The table of states and events as a snapshot, and the document that shows the same.

use std::fs;
use std::path::{Path, PathBuf};

use windlass_tests::state_table::{diagram, table};

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/STATE_MACHINE.md")
}

/// Whether the document is to be written instead of compared.
#[expect(clippy::disallowed_methods, reason = "an update is asked for at the edge of the test")]
fn update() -> bool {
    std::env::var("WINDLASS_UPDATE").is_ok_and(|text| text == "1")
}

/// The document with its generated part of this name replaced.
fn with_part(text: &str, name: &str, part: &str) -> String {
    let begin = format!("{BEGIN}{name} -->\n");
    let (before, rest) = text.split_once(&begin).expect("the document marks the part's beginning");
    let (_, after) = rest.split_once(END).expect("the document marks the part's end");
    format!("{before}{begin}{part}{END}{after}")
}

#[test]
fn every_pair_of_state_and_event_has_the_answer_of_the_table() {
    insta::assert_snapshot!("table", table());
}

#[test]
fn the_moves_are_those_of_the_diagram() {
    insta::assert_snapshot!("diagram", diagram());
}

#[test]
fn the_document_shows_the_table_and_the_diagram_of_the_code() {
    let path = document();
    let text = fs::read_to_string(&path).expect("docs/STATE_MACHINE.md can be read");
    let diagram = format!("\n```text\n{}```\n\n", diagram());
    let generated = with_part(&text, "diagram", &diagram);
    let generated = with_part(&generated, "table", &format!("\n{}\n", table()));
    if update() {
        fs::write(&path, &generated).expect("docs/STATE_MACHINE.md can be written");
    } else {
        let advice = "docs/STATE_MACHINE.md differs from the code: run with WINDLASS_UPDATE=1";
        assert!(text == generated, "{advice}\nexpected:\n{generated}");
    }
}
