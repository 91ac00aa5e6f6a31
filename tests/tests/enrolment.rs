//! No case of the conformance suite is left out: every one stands in the list of `conformance!` or
//! of `concurrent_conformance!`.
//!
//! It reads the sources as text. That a listed case exists is the compiler's to check.

use std::fs;
use std::path::Path;

/// A case is a function of one of these shapes. How it is broken into lines does not count.
const START: &str = "pub fn ";
const ENDS: [&str; 2] = ["<S:Subject>()", "<S:ConcurrentSubject"];

/// The cases that a family's file holds.
fn cases(text: &str) -> Vec<String> {
    let functions = text.lines().enumerate().filter(|(_, line)| line.starts_with(START));
    let heads = functions.map(|(at, _)| {
        let lines = text.lines().skip(at).take(3);
        lines.collect::<String>()[START.len()..].split_whitespace().collect::<String>()
    });
    let name = |head: String| {
        let end = ENDS.iter().filter_map(|end| head.find(end)).min()?;
        (head[..end].chars().all(is_name)).then(|| head[..end].to_owned())
    };
    heads.filter_map(name).collect()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The cases that the list names for this family. How the list is broken into lines does not count.
fn listed(list: &str, family: &str) -> Vec<String> {
    let list: String = list.split_whitespace().collect();
    let start = format!("conformance_family!($subject,{family},[");
    let after = list.split_once(&start).map_or("", |(_, after)| after);
    let names = after.split_once(']').map_or("", |(names, _)| names);
    names.split(',').map(str::to_owned).collect()
}

/// The cases of this family that the list leaves out.
fn left_out(family: &str, text: &str, list: &str) -> Vec<String> {
    let listed = listed(list, family);
    let missing = cases(text).into_iter().filter(|case| !listed.contains(case));
    missing.map(|case| format!("{family}::{case}")).collect()
}

#[test]
fn every_case_stands_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let list = ["list_jobs.rs", "list_store.rs", "../concurrent.rs"]
        .map(|file| fs::read_to_string(folder.join(file)).expect("the lists can be read"));
    let list = list.concat();
    let mut missing = Vec::new();
    let mut found = 0;
    for entry in fs::read_dir(&folder).expect("the suite can be listed") {
        let path = entry.expect("the suite can be listed").path();
        let text = fs::read_to_string(&path).expect("a file of the suite can be read");
        let family = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        found += cases(&text).len();
        missing.extend(left_out(family, &text, &list));
    }
    assert!(found > 0, "the suite was not found where this test looks for it");
    assert!(missing.is_empty(), "add to the lists of the suites: {missing:#?}");
}

#[test]
fn a_case_left_out_is_found() {
    let text = "pub fn a<S: Subject>() {\n}\nfn help() {}\npub fn b<S: Subject>() {}\n\
                pub fn c<\n    S: ConcurrentSubject,\n>() {\n}\n";
    let list = "$crate::conformance_family!(\n$subject,\nenqueue,\n[a,]\n);\n\
                $crate::conformance_family!($subject, claim, [b, c]);";
    assert_eq!(left_out("enqueue", text, list), ["enqueue::b", "enqueue::c"]);
    assert_eq!(left_out("claim", text, list), ["claim::a"]);
    assert_eq!(left_out("unlisted", text, list), ["unlisted::a", "unlisted::b", "unlisted::c"]);
}
