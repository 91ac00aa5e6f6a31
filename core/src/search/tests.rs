//! Places of a payload, and how much is read together.

use super::*;
use crate::{Aging, Flow, Kind, Millis, NewJob, Payload, Policy, Priority, QueueSettings, View};

#[test]
fn a_value_is_found_by_its_pointer_and_compared_as_it_is_written() {
    let document = r#" {"user":{"id":9007199254740993001,"a/b":"x","~":[1,{"k":"\u00e9"}, 3]},
        "e\"\\": "\ud83d\ude00\n" , "twice":1, "twice":[], "last" : null} "#;
    for (pointer, wanted, holds) in [
        ("/user/id", "9007199254740993001", true),
        ("/user/id", "9007199254740993000", false),
        ("/user/a~1b", "x", true),
        ("/user/a~1b", "\"x\"", true),
        ("/user/~0/0", "1", true),
        ("/user/~0/1/k", "é", true),
        ("/user/~0/2", "3", true),
        ("/user/~0/3", "1", false),
        ("/user/~0/x", "1", false),
        ("/user/id/x", "9", false),
        ("/e\"\\", "😀\n", true),
        ("/twice", "1", false),
        ("/twice", "[]", true),
        ("/twice/0", "1", false),
        ("/last", "null", true),
        ("/none", "x", false),
        ("/", "x", false),
    ] {
        let read = Pointer::new(pointer).expect("it is a pointer");
        assert_eq!(read.holds(document, wanted), holds, "{pointer} {wanted}");
        assert_eq!(read.as_str(), pointer);
    }
    assert_eq!(Pointer::new("user"), Err(BadPointer));
    assert_eq!(Pointer::new(""), Err(BadPointer));
}

#[test]
fn a_text_that_is_no_json_holds_nothing_and_is_read_to_its_end_only() {
    let whole = r#"{"a":[{"b":"c\"\u00e9"},[1,2]],"d":"\ud800"}"#;
    for end in 0..=whole.len() {
        for start in 0..end {
            for pointer in ["/a/0/b", "/a/1/1", "/d", "/0"] {
                let pointer = Pointer::new(pointer).expect("it is a pointer");
                // The answer does not matter: it must not panic or go on for ever.
                pointer.holds(&whole[start..end], "2");
            }
        }
    }
    for (text, wanted) in [("{\"a\":\"\\ud800\"}", "x"), ("{\"a\":\"\\q\"}", "q"), ("{\"a\":", "")]
    {
        assert!(!Pointer::new("/a").expect("it is a pointer").holds(text, wanted), "{text}");
    }
}

#[test]
fn documents_are_read_in_steps_that_fit_their_size() {
    let step = |bytes, documents| Spent { documents, bytes }.step();
    assert_eq!(step(0, 0), 16);
    assert_eq!(step(100 * 50, 50), 256);
    assert_eq!(step(16 * 1024 * 1024, 16), 1);
    assert_eq!(step(usize::MAX, 1), 1);
}

#[test]
fn no_conditions_leave_no_job_out() {
    assert!(Conditions::default().are_none());
    let least = Some(Priority::MIN.get());
    assert!(!Conditions { priority_min: least, ..Conditions::default() }.are_none());
}

#[test]
fn a_queued_job_is_found_by_when_it_fell_due_whatever_its_rank_is() {
    let aging = Aging::new(86_400_000).ok();
    let settings = QueueSettings { flow: Flow { aging, ..Flow::NONE }, ..QueueSettings::default() };
    let now = Wall::new(1_700_000_000_000);
    for priority in [-10, 10] {
        let mut new = NewJob::new(Kind::default(), Payload::null());
        new.priority = Priority::new(priority).expect("it is in bounds");
        let terms = new.terms(&settings, &Policy::default());
        let mut job = new.admit(JobId::FIRST, terms, now).expect("it is due now");
        job.rank = settings.rank(&job);
        assert_ne!(job.index_key().at, now, "it is listed by its rank");
        let view = Some(View::Queued);
        let filter = Filter { view, ..Filter::default() };
        let hour = Millis::hours(1);
        let within = |from, to| {
            let conditions = Conditions { from, to, ..Conditions::default() };
            let search = Search { filter: filter.clone(), queues: Vec::new(), conditions };
            let (rows, over) = search.within(core::slice::from_ref(&job));
            assert!(rows.len() == 1 && !over && search.start(None).is_none(), "nothing is cut off");
            search.includes(&job)
        };
        assert!(within(Some(now.minus(hour)), Some(now.plus(hour))));
        assert!(!within(Some(now.plus(hour)), None) && !within(None, Some(now.minus(hour))));
    }
}
