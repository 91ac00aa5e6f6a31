//! Properties of groups; what the rules make of real texts is shown by the corpus in
//! `windlass-tests`.

use alloc::format;
use alloc::string::String;

use super::*;
use crate::limits::{GROUP_QUEUES, GROUP_TITLE_BYTES};
use crate::{Millis, QueueName, Wall};

fn kind() -> Kind {
    Kind::new("k").expect("it is a name")
}

fn of(error: &str) -> ErrorGroup {
    ErrorGroup::of(&kind(), &ErrorText { error, ..ErrorText::default() })
}

#[test]
fn the_kind_and_the_exit_code_belong_to_the_group() {
    let command = |code| ErrorText { error: "e", exit_code: Some(code), stderr: Some("a\nb 7\n") };
    let one = ErrorGroup::of(&kind(), &command(1));
    assert_eq!(one.title.to_string(), "exit code 1: b {number}");
    assert_ne!(one.id, ErrorGroup::of(&kind(), &command(2)).id);
    let other = Kind::new("other").expect("it is a name");
    assert_ne!(one.id, ErrorGroup::of(&other, &command(1)).id);
    assert_ne!(ErrorGroup::other(&kind()).id, ErrorGroup::other(&other).id);
}

#[test]
fn ids_are_read_back_from_their_text_and_nothing_else_is() {
    let id = of("x").id;
    assert_eq!(id.to_string().parse(), Ok(id));
    for bad in ["", "1", "+0000000000000000000000000000001", &"g".repeat(32), &"1".repeat(33)] {
        assert_eq!(bad.parse::<GroupId>(), Err(ParseIdError::Group), "{bad}");
    }
}

#[test]
fn a_hostile_text_costs_no_more_than_its_first_line_and_keeps_its_bounds() {
    let hostile = [
        "\"".repeat(4_000),
        "{\"".repeat(2_000),
        "'a ".repeat(1_300),
        "=(".repeat(2_000),
        "1.".repeat(2_000),
        "a1-".repeat(1_300),
        "://".repeat(1_300),
        "\u{1}a".repeat(2_000),
        "\u{1b}[".repeat(2_000),
        "ä1".repeat(1_300),
        "Traceback (most recent call last):\n".repeat(100),
        "\n".repeat(4_000),
        String::from("\u{2028}\u{200f}\u{0}"),
    ];
    for text in hostile {
        let group = of(&text);
        let stored = group.title.as_stored();
        assert!(stored.len() <= GROUP_TITLE_BYTES, "{stored}");
        assert!(group.sample.len() <= LINE_BYTES);
        assert_eq!(Title::from_stored(stored).as_ref(), Some(&group.title), "{stored}");
    }
}

#[test]
fn every_slot_is_stored_and_shown() {
    for slot in Slot::ALL {
        let mut title = Title::default();
        title.push_text("a ");
        title.push_slot(slot);
        let stored = Title::from_stored(title.as_stored()).expect("it was stored");
        assert!(stored.parts().eq([TitlePart::Text("a "), TitlePart::Slot(slot)]));
    }
    for bad in ["\u{1}", "\u{1}z", "a\nb"] {
        assert_eq!(Title::from_stored(bad), None, "{bad:?}");
    }
}

#[test]
fn a_row_survives_its_text_and_other_texts_are_refused() {
    let (queue, hour) = (QueueName::default(), Millis::minutes(60));
    let group = of("a \"b\" failed\nmore");
    let mut row = GroupRow::new(kind(), group, Wall::new(7));
    row.add(&queue, Wall::new(7));
    row.add(&queue, Wall::new(7).plus(hour));
    row.sample = String::from("lines\nof\ttext");
    let text = row.to_text();
    assert_eq!(GroupRow::from_text(row.id, &text), Ok(row.clone()));
    for (line, _) in text.lines().enumerate().take(10) {
        let spoilt = text.lines().enumerate();
        let spoilt = spoilt.map(|(at, text)| if at == line { "\u{2}=" } else { text });
        let spoilt: alloc::vec::Vec<&str> = spoilt.collect();
        assert_eq!(GroupRow::from_text(row.id, &spoilt.join("\n")), Err(BadGroup { line }));
    }
}

#[test]
fn the_jobs_of_a_queue_are_counted_in_one_place_however_many_queues_there_are() {
    let queue = |n: usize| QueueName::new(&format!("q{n}")).expect("it is a name");
    let mut row = GroupRow::new(kind(), of("x"), Wall::new(0));
    for n in (0..GROUP_QUEUES + 2).chain(0..GROUP_QUEUES + 2) {
        row.add(&queue(n), Wall::new(0));
    }
    assert_eq!((row.queues.named.len(), row.queues.others), (GROUP_QUEUES, 4));
    row.remove(&queue(0));
    row.remove(&queue(0));
    row.add(&queue(GROUP_QUEUES), Wall::new(0));
    assert_eq!((row.queues.named.len(), row.queues.others), (GROUP_QUEUES - 1, 5));
    for n in [0, 1, GROUP_QUEUES, GROUP_QUEUES, GROUP_QUEUES, GROUP_QUEUES + 1] {
        row.add(&queue(n), Wall::new(0));
        row.remove(&queue(n));
    }
    assert_eq!(row.live, row.queues.others + row.queues.named.iter().map(|(_, n)| n).sum::<u64>());
}

#[test]
fn hours_move_on_with_the_clock_and_keep_no_more_than_a_day() {
    let at = |hour: u64| Wall::new(0).plus(Millis::minutes(60 * hour));
    let mut hours = Hours::default();
    for hour in [100, 100, 101, 103, 102, 60] {
        hours.add(at(hour));
    }
    assert_eq!(hours.until(at(103))[20..], [2, 1, 1, 1]);
    assert_eq!(hours.until(at(104))[19..], [2, 1, 1, 1, 0]);
    assert_eq!(hours.until(at(126)).iter().sum::<u32>(), 1);
    assert_eq!(hours.until(at(127)), [0; Hours::KEPT]);
    hours.add(at(500));
    assert_eq!(hours.until(at(500)).iter().sum::<u32>(), 1);
}

#[test]
fn a_group_is_removed_a_week_after_its_last_failure_if_it_has_no_dead_letters() {
    let queue = QueueName::default();
    let mut row = GroupRow::new(kind(), of("x"), Wall::new(0));
    row.add(&queue, Wall::new(0));
    let later = Wall::new(0).plus(crate::limits::GROUP_KEPT);
    assert!(!row.is_removable(later));
    row.remove(&queue);
    assert!(row.is_removable(later) && !row.is_removable(later.minus(Millis::new(1))));
}
