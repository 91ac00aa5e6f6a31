//! Checks of what a file may say: words that are banned, attributes that need a reason, paths.
//!
//! Needles that are banned in comments too are put together from two parts, so that this file does
//! not find itself.

use super::Finding;
use super::lexer::{code_only, end_of_item, is_name, line_of, literals, places};

/// What core may not name in its code, and what to do instead.
const BANNED_IN_CORE: [(&str, &str); 11] = [
    ("std::", "core is no_std: use `core::` or `alloc::`"),
    ("extern crate std", "core is no_std: use `core` or `alloc`"),
    ("SystemTime", "time is an argument"),
    ("Instant", "time is an argument"),
    ("HashMap", "its order is random: use `BTreeMap`"),
    ("HashSet", "its order is random: use `BTreeSet`"),
    ("thread_rng", "chance is an input: hash what is given"),
    ("rand", "chance is an input: hash what is given"),
    ("tokio", "core knows no runtime: return an effect"),
    ("println!", "core prints nothing: return what there is to say"),
    ("unsafe", "core forbids it"),
];

/// What no Rust file may hold, in comments neither, and what to do instead.
const UNFINISHED: [(&str, &str); 6] = [
    (concat!("to", "do!"), "finish it"),
    (concat!("unimple", "mented!"), "finish it"),
    (concat!("FIX", "ME"), "fix it, or open an issue"),
    (concat!("TO", "DO"), "do it, or open an issue"),
    (concat!("#[ig", "nore"), "a test runs or is deleted"),
    (concat!("thread::", "sleep"), "wait for a signal, not for time"),
];

/// Words that say less than the usual term, and what to write instead. They are searched in
/// comments, strings and documents, in lower case.
const UNCLEAR: [(&str, &str); 20] = [
    (concat!("an", "ew"), "write `again`, or name what happens: reopened, restarted"),
    (concat!("whi", "ther"), "write `where`"),
    (concat!("some", "body"), "name who: a caller, an operator, another process"),
    (concat!("so ", "many"), "write `at most N`, `this number of`"),
    (concat!("is he", "ard"), "name what arrives"),
    (concat!("is beli", "eved"), "name what is trusted"),
    (concat!("medd", "led"), "write `changed`"),
    (concat!("min", "ded"), "write `supervised`"),
    (concat!("men", "ded"), "write `repaired` or `fixed`"),
    (concat!("no", "body"), "name who does not: no client, no worker, no other process"),
    (concat!("lies ", "there"), "write `is stored`"),
    (concat!("lie ", "there"), "write `are stored`"),
    (concat!("still ", "at it"), "write `still runs`"),
    (concat!("who", "ever"), "name who: servers, workers, clients"),
    (concat!("every", "body"), "name who: every caller, every user"),
    (concat!("he", "ars"), "write `gets`, `receives`"),
    (concat!("what came ", "of"), "write `the result`"),
    (concat!("stran", "ger"), "name who: a caller without a token"),
    (concat!("medd", "le"), "write `change`"),
    (concat!("medd", "les"), "write `changes`"),
];

/// More of them, searched where names are searched too.
const UNCLEAR_IN_NAMES: [(&str, &str); 6] = [
    (concat!("at ", "it"), "name what it is at"),
    (concat!("stan", "ds for"), "write `is`, `means` or `replaces`"),
    (concat!("te", "nd"), "write `maintain`, or name what is done"),
    (concat!("me", "nd"), "write `repair` or `fix`"),
    (concat!("to", "ld"), "write `reported`, `shown`, `asked` or `answered`"),
    (concat!("hea", "rd"), "write `received` or `accepted`, or name what arrived"),
];

/// Words that users are not shown, beside those of [`UNCLEAR`].
const UNCLEAR_TO_USERS: [(&str, &str); 4] = [
    ("forget", "write `delete`, or `remove`"),
    ("forgets", "write `deletes`, or `removes`"),
    ("so long", "write `a delay`, or name the time"),
    ("goes by", "write `is named`"),
];

const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

const CORE_ATTRIBUTES: [&str; 2] = ["#![no_std]", "#![forbid(unsafe_code)]"];

/// Words of the outer world in the code of core; comments and strings may name them.
pub(crate) fn banned_in_core(text: &str) -> Vec<Finding> {
    find_all(&code_only(text), &BANNED_IN_CORE)
}

/// Unsafe code, for files that may not hold any.
pub(crate) fn unsafe_code(text: &str) -> Vec<Finding> {
    let advice = "it is confined to the file system of the SQLite crash tests";
    find_all(&code_only(text), &[("unsafe", advice)])
}

/// Things put off, switched off or waiting, anywhere in a Rust file; but for a wait whose reason
/// stands on the line above, where clippy wants it too.
pub(crate) fn unfinished(text: &str) -> Vec<Finding> {
    let excused = |line: usize| {
        let above = line.checked_sub(2).and_then(|at| text.lines().nth(at));
        above.is_some_and(|above| above.contains(EXCUSE))
    };
    let mut findings = find_all(&text.chars().collect::<Vec<char>>(), &UNFINISHED);
    findings.retain(|finding| !excused(finding.line));
    findings
}

const EXCUSE: &str = "#[expect(clippy::disallowed_methods, reason = ";

/// Words of [`UNCLEAR`], anywhere in a file. In quotes they are names: of a user, of a test's data.
pub(crate) fn unclear(text: &str) -> Vec<Finding> {
    find_all(&plain(text), &UNCLEAR)
}

/// The same and more, also where they are parts of names, as in `a_job_of_…`.
pub(crate) fn unclear_in_names(text: &str) -> Vec<Finding> {
    let split: Vec<char> =
        plain(text).into_iter().map(|c| if c == '_' { ' ' } else { c }).collect();
    let mut findings = find_all(&split, &UNCLEAR);
    findings.extend(find_all(&split, &UNCLEAR_IN_NAMES));
    findings
}

/// Functions that are named by a word of speech, not by what they do.
pub(crate) fn telling_functions(text: &str) -> Vec<Finding> {
    let code = code_only(text);
    let mut findings = Vec::new();
    for at in places(&code, "fn") {
        let name_at = at + 3;
        let rest = code.get(name_at..).unwrap_or_default();
        let name: String = rest.iter().take_while(|c| is_name(**c)).collect();
        if name == TELL || name.strip_prefix(TELL).is_some_and(|end| end.starts_with('_')) {
            let what = format!("fn {name}: name what it does: print, render, add_to, report");
            findings.push(Finding::new(line_of(&code, at), what));
        }
    }
    findings
}

const TELL: &str = "tell";

/// Words that users may not read in the string literals of a file, outside of its tests.
pub(crate) fn unclear_literals(text: &str) -> Vec<Finding> {
    let code = code_only(text);
    let tests: Vec<(usize, usize)> = test_items(&code)
        .into_iter()
        .map(|(start, end)| (line_of(&code, start), line_of(&code, end)))
        .collect();
    let in_tests = |line: usize| tests.iter().any(|&(first, last)| (first..=last).contains(&line));
    let mut findings = Vec::new();
    for (line, literal) in literals(text).into_iter().filter(|(line, _)| !in_tests(*line)) {
        let found = unclear_to_users(&literal).into_iter();
        findings.extend(found.map(|finding| Finding::new(line, finding.what)));
    }
    findings
}

/// The items under `#[cfg(test)]`, from their attribute to their end.
fn test_items(code: &[char]) -> Vec<(usize, usize)> {
    let item = |at: usize| (at, end_of_item(code, end_of_attribute(code, at)));
    places(code, "#[cfg(test)]").into_iter().map(item).collect()
}

/// Words that may not stand in what users read: help, messages, the description of the API.
pub(crate) fn unclear_to_users(text: &str) -> Vec<Finding> {
    let mut findings = unclear(text);
    for more in [&UNCLEAR_IN_NAMES[..], &UNCLEAR_TO_USERS] {
        findings.extend(find_all(&plain(text), more));
    }
    findings
}

/// The doc comments of a file that clap shows as help: those of types and fields with arguments.
/// Other lines are left empty.
pub(crate) fn help(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut is_help = false;
    for line in lines.iter_mut().rev() {
        let trimmed = line.trim_start();
        if !trimmed.starts_with("///") {
            is_help = ["#[arg", "#[command", "#[derive(Debug, Args", "#[derive(Debug, Subcommand"]
                .iter()
                .any(|start| trimmed.starts_with(start));
            *line = "";
        } else if !is_help {
            *line = "";
        }
    }
    lines.join("\n")
}

/// Lower case, and without words that are quoted alone.
fn plain(text: &str) -> Vec<char> {
    let mut lower = text.to_lowercase();
    for (word, _) in UNCLEAR.iter().chain(&UNCLEAR_IN_NAMES) {
        lower = lower.replace(&format!("\"{word}\""), &" ".repeat(word.len() + 2));
    }
    lower.chars().collect()
}

fn find_all(chars: &[char], needles: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (needle, advice) in needles {
        for at in places(chars, needle) {
            let what = format!("`{needle}` may not stand here: {advice}");
            findings.push(Finding::new(line_of(chars, at), what));
        }
    }
    findings
}

/// Whether a file of core holds tests only, by its name.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Calls of `unwrap` outside of items under `#[cfg(test)]`.
pub(crate) fn unwraps(text: &str) -> Vec<Finding> {
    let code = code_only(text);
    let tests = test_items(&code);
    let in_tests = |at: usize| tests.iter().any(|&(start, end)| (start..end).contains(&at));
    let calls = places(&code, ".unwrap()").into_iter().filter(|&at| !in_tests(at));
    let what = "`.unwrap()`: return an error, or `expect` why it cannot happen";
    calls.map(|at| Finding::new(line_of(&code, at), what)).collect()
}

/// The attributes that core's root must have.
pub(crate) fn core_attributes(text: &str) -> Vec<Finding> {
    let code: String = code_only(text).into_iter().collect();
    let missing = CORE_ATTRIBUTES.iter().filter(|attribute| !code.contains(*attribute));
    missing.map(|attribute| Finding::new(1, format!("`{attribute}` is missing: add it"))).collect()
}

/// `allow` and `expect` attributes that do not say why.
pub(crate) fn allows_without_reason(text: &str) -> Vec<Finding> {
    let code = code_only(text);
    let mut findings = Vec::new();
    for needle in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
        for at in places(&code, needle) {
            let attribute = &code[at..end_of_attribute(&code, at)];
            if places(attribute, "reason").is_empty() {
                let what = format!("`{needle}…)]` without a reason: add `reason = \"…\"`");
                findings.push(Finding::new(line_of(&code, at), what));
            }
        }
    }
    findings
}

/// The place behind the bracket that closes the attribute at `start`.
fn end_of_attribute(code: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.iter().enumerate().skip(start) {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => return at + 1,
            ']' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Crates of concrete stores that are named; figures that begin like them are strings.
pub(crate) fn concrete_stores(text: &str) -> Vec<Finding> {
    let code: String = code_only(text).into_iter().collect();
    let what = "only `server/src/store.rs` and what is below it know which stores there are: have \
                it pass on what is needed";
    let named = (1..).zip(code.lines()).filter(|(_, line)| line.contains("windlass_store_"));
    named.map(|(line, _)| Finding::new(line, what)).collect()
}

/// Absolute paths of one machine; the middle of a longer path or of an address is none.
pub(crate) fn machine_paths(text: &str) -> Vec<Finding> {
    let chars: Vec<char> = text.chars().collect();
    let mut findings = Vec::new();
    for needle in MACHINE_PATHS {
        for at in places(&chars, needle) {
            if at > 0 && (is_name(chars[at - 1]) || chars[at - 1] == '.') {
                continue;
            }
            let what =
                format!("a path under {needle} is true on one machine only: make it relative");
            findings.push(Finding::new(line_of(&chars, at), what));
        }
    }
    findings
}

/// Whether the text says `Rust <version>`, and not some longer version.
pub(crate) fn states_rust_version(text: &str, version: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let stated = format!("Rust {version}");
    let behind =
        |at: usize| chars[at + stated.chars().count()..].iter().take(2).collect::<String>();
    let goes_on = |rest: String| {
        let mut rest = rest.chars();
        rest.next() == Some('.') && rest.next().is_some_and(|c| c.is_ascii_digit())
    };
    places(&chars, &stated).into_iter().any(|at| !goes_on(behind(at)))
}

/// Whether a changelog has a section for `version`, or one for what is not released.
pub(crate) fn has_section(text: &str, version: &str) -> bool {
    let titles = text.lines().filter_map(|line| line.strip_prefix("## "));
    let first_words = titles.filter_map(|title| title.split_whitespace().next());
    first_words.map(|word| word.trim_matches(['[', ']'])).any(|w| w == version || w == "Unreleased")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(findings: &[Finding], expected_lines: &[usize]) {
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expected_lines, "{findings:?}");
    }

    #[test]
    fn every_banned_word_of_core_is_found_in_code() {
        for (needle, _) in BANNED_IN_CORE {
            let found = banned_in_core(&format!("use a;\nfn b() {{ {needle} }}\n"));
            assert!(found.iter().any(|finding| finding.line == 2), "{needle} was not found");
        }
    }

    #[test]
    fn a_banned_word_may_be_talked_about_and_be_part_of_a_name() {
        check(&banned_in_core("//! No std::time, no HashMap.\nconst A: &str = \"unsafe\";\n"), &[]);
        check(&banned_in_core("#![forbid(unsafe_code)]\nlet operand = my_std::a;\n"), &[]);
    }

    #[test]
    fn unsafe_code_is_found_and_talk_of_it_is_not() {
        check(&unsafe_code("#![forbid(unsafe_code)]\n// unsafe\nlet a = \"unsafe\";\n"), &[]);
        check(&unsafe_code("fn a() {}\nunsafe fn b() {}\n"), &[2]);
    }

    #[test]
    fn every_unfinished_thing_is_found_in_comments_too() {
        for (needle, _) in UNFINISHED {
            check(&unfinished(&format!("a\n// {needle}\n")), &[2]);
        }
        check(&unfinished("let METHODO = ignored(asleep);"), &[]);
        let sleep = concat!("thread::", "sleep(a);\n");
        check(&unfinished(&format!("{EXCUSE}\"it must\")]\n{sleep}{sleep}")), &[3]);
    }

    #[test]
    fn every_unclear_word_is_found_and_longer_words_are_not() {
        for (needle, _) in UNCLEAR {
            check(&unclear(&format!("a\n/// X {} y.\n", needle.to_uppercase())), &[2]);
        }
        check(&unclear("// reminded renewed\n"), &[]);
        check(&unclear(concat!("let user = \"no", "body\";\n")), &[]);
        for (needle, _) in UNCLEAR_TO_USERS {
            check(&unclear_to_users(&format!("a\n{needle} b\n")), &[2]);
            check(&unclear(needle), &[]);
        }
    }

    #[test]
    fn unclear_words_are_found_as_parts_of_names_and_longer_words_are_not() {
        for (needle, _) in UNCLEAR.iter().chain(&UNCLEAR_IN_NAMES) {
            let name = needle.replace(' ', "_");
            for text in [format!("a\nfn a_{name}_b() {{}}\n"), format!("a\n// It {needle} b.\n")] {
                let found = unclear_in_names(&text);
                assert!(!found.is_empty() && found.iter().all(|f| f.line == 2), "{text}{found:?}");
            }
        }
        check(&unclear_in_names("fn a_recommended_tendency_at_its_end() {}\n"), &[]);
        check(&unclear_in_names(concat!("let user = \"no", "body\";\n")), &[]);
    }

    #[test]
    fn a_function_that_tells_is_found_and_a_longer_word_is_not() {
        check(&telling_functions("// fn tell()\npub(crate) fn tell(a: u8) {}\n"), &[2]);
        check(&telling_functions("\n\nfn tell_reads<T>() {}\n"), &[3]);
        check(&telling_functions("fn teller() { tell.send(1); }\nfn retell() {}\n"), &[]);
    }

    #[test]
    fn words_in_literals_are_found_across_lines_and_not_in_tests_or_names() {
        check(&unclear_literals("fn forget() {}\nlet a = \"we forget\"; // forget\n"), &[2]);
        check(&unclear_literals("let a = \"for so \\\n    long\";\n"), &[1]);
        check(&unclear_literals("#[cfg(test)]\nmod tests {\n a(\"forget it\");\n}\n"), &[]);
    }

    #[test]
    fn help_is_what_stands_above_arguments() {
        let text = "/// A.\n#[arg(long)]\nx: u8,\n/// B.\nfn c() {}\n";
        assert_eq!(help(text), "/// A.\n\n\n\n");
    }

    #[test]
    fn an_unwrap_is_found_outside_of_tests_only() {
        let tests = "#[cfg(test)]\nmod tests {\n fn a() { b.unwrap(); }\n}\n";
        check(&unwraps(tests), &[]);
        check(&unwraps(&format!("{tests}fn c() {{ d.unwrap() }}\n")), &[5]);
        check(&unwraps("#[cfg(test)]\nmod tests;\nfn c() { d.unwrap() }\n"), &[3]);
        check(&unwraps("fn c() { d.unwrap_or(1) } // .unwrap()\n"), &[]);
    }

    #[test]
    fn core_without_its_attributes_is_refused() {
        check(&core_attributes("//! A.\n#![no_std]\n#![forbid(unsafe_code)]\n"), &[]);
        check(&core_attributes("//! A.\n// #![no_std]\n#![forbid(unsafe_code)]\n"), &[1]);
        check(&core_attributes("//! A.\n#![no_std]\n#![deny(unsafe_code)]\n"), &[1]);
    }

    #[test]
    fn a_lint_is_switched_off_with_a_reason_only() {
        check(&allows_without_reason("#[expect(a, reason = \"so\")]\nfn b() {}\n"), &[]);
        check(&allows_without_reason("fn a() {}\n#[allow(b)]\nfn reason() {}\n"), &[2]);
        check(&allows_without_reason("#![expect(\n    a,\n)]\n"), &[1]);
    }

    #[test]
    fn a_concrete_store_is_found_and_the_name_of_a_figure_is_not() {
        check(&concrete_stores("use windlass_store_redb::RedbStore;\n"), &[1]);
        check(&concrete_stores("a\nlet b = windlass_store_postgres::C;\n"), &[2]);
        check(&concrete_stores("let a = \"windlass_store_bytes\"; // windlass_store_file\n"), &[]);
    }

    #[test]
    fn a_machine_path_is_found_and_the_middle_of_an_address_is_not() {
        for needle in MACHINE_PATHS {
            check(&machine_paths(&format!("a\nopen {needle}b\n")), &[2]);
            check(&machine_paths(&format!("file://{needle}b\n")), &[1]);
            check(&machine_paths(&format!("https://a.org{needle}b\n.{needle}c\n")), &[]);
        }
    }

    #[test]
    fn a_longer_version_is_another_version() {
        assert!(states_rust_version("Needs Rust 1.95 or newer.", "1.95"));
        assert!(states_rust_version("Needs Rust 1.95.", "1.95"));
        assert!(!states_rust_version("Needs Rust 1.950.", "1.95"));
        assert!(!states_rust_version("Needs Rust 1.95.1.", "1.95"));
        assert!(!states_rust_version("Needs Rust 1.94.", "1.95"));
    }

    #[test]
    fn a_changelog_names_the_version_in_a_title() {
        assert!(has_section("# Changelog\n## Unreleased\n", "1.0.0"));
        assert!(has_section("## [1.0.0] - today\n", "1.0.0"));
        assert!(!has_section("Unreleased 1.0.0\n## 0.9.0\n", "1.0.0"));
    }
}
