//! What core's rules make of real error texts: a corpus of many languages and tools, and a snapshot
//! of the groups it falls into. A person has divided the corpus; the rules must divide it alike.

mod many;
#[path = "../subject/mod.rs"]
mod subject;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use windlass_core::limits::GROUP_TITLE_BYTES;
use windlass_core::{ErrorGroup, ErrorText, GroupId, Kind, Title};

/// An entry of the corpus: what the attempt said.
struct Entry {
    exit_code: Option<i32>,
    text: String,
}

/// The blocks of the corpus, each with its name.
fn corpus() -> Vec<(&'static str, Vec<Entry>)> {
    let mut blocks = Vec::new();
    for block in include_str!("corpus.txt").split("## ").skip(1) {
        let (name, lines) = block.split_once('\n').expect("a block has lines");
        let lines = lines.strip_suffix("\n\n").or(lines.strip_suffix('\n')).unwrap_or(lines);
        blocks.push((name, lines.split('\n').map(entry).collect()));
    }
    blocks
}

fn entry(line: &str) -> Entry {
    let command = line.strip_prefix("exit ").and_then(|line| line.split_once('|'));
    let (exit_code, text) = command.map_or((None, line), |(code, text)| (code.parse().ok(), text));
    let text = text.replace("\\\\", "\u{1a}").replace("\\n", "\n").replace("\\t", "\t");
    Entry { exit_code, text: text.replace("\\e", "\u{1b}").replace('\u{1a}', "\\") }
}

fn group(entry: &Entry) -> ErrorGroup {
    let kind = Kind::new("k").expect("it is a name");
    let text = entry.text.as_str();
    let of = match entry.exit_code {
        None => ErrorText { error: text, ..ErrorText::default() },
        code => ErrorText { error: "it failed", exit_code: code, stderr: Some(text) },
    };
    ErrorGroup::of(&kind, &of)
}

#[test]
fn the_corpus_falls_into_the_groups_that_a_person_made() {
    let mut owners: BTreeMap<GroupId, (&str, Title)> = BTreeMap::new();
    let mut wrong = String::new();
    for (name, entries) in corpus() {
        let groups: BTreeMap<GroupId, ErrorGroup> =
            entries.iter().map(group).map(|group| (group.id, group)).collect();
        if groups.len() > 1 {
            writeln!(wrong, "{name} is divided:").expect("it is a string");
            for group in groups.values() {
                writeln!(wrong, "    {}", group.title).expect("it is a string");
            }
        }
        for group in groups.into_values() {
            if let Some((other, title)) = owners.insert(group.id, (name, group.title)) {
                writeln!(wrong, "{name} and {other} are one: {title}").expect("it is a string");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_titles_of_the_corpus() {
    let mut shown = String::new();
    for (name, entries) in corpus() {
        let titles: BTreeMap<String, usize> =
            entries.iter().fold(BTreeMap::new(), |mut all, entry| {
                *all.entry(group(entry).title.to_string()).or_default() += 1;
                all
            });
        for (title, count) in titles {
            writeln!(shown, "{name} × {count}: {title}").expect("it is a string");
        }
    }
    insta::assert_snapshot!("corpus", shown);
}

proptest! {
    #[test]
    fn any_text_has_one_group_with_a_title_within_its_bound(
        text in "(\\PC|[\\x00-\\x7f]|[a-z]{1,9} |[0-9./:'\"{}=(\\-]{1,9}){0,200}",
        exit_code in proptest::option::of(any::<i32>()),
    ) {
        let entry = Entry { exit_code, text };
        let (one, again) = (group(&entry), group(&entry));
        prop_assert_eq!(&one, &again);
        let stored = one.title.as_stored();
        prop_assert!(stored.len() <= GROUP_TITLE_BYTES);
        prop_assert_eq!(Title::from_stored(stored), Some(one.title.clone()));
    }
}
