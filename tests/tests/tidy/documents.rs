//! Checks of Markdown: links and anchors lead somewhere, code blocks name their language, every
//! block of commands is run by CI or says why not, and what is said of CI is there.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Finding;

/// Languages that a code block may have. Blocks of `sh` are run by `.ci/documents`, `rust` by
/// rustdoc.
const LANGUAGES: [&str; 12] =
    ["sh", "text", "rust", "python", "js", "go", "json", "sql", "ini", "nginx", "promql", "toml"];

/// Languages of programs: their blocks are run, or say why not.
const PROGRAMS: [&str; 4] = ["sh", "python", "js", "go"];

/// How a block names the steps of CI that run it, and how it begins a reason why none does.
const RUN_BY: &str = " ci=\"run by: ";
const NOT_RUN: &str = " ci=\"not run: ";

/// The end of a fence, if this line is one: also in a list, where it is indented.
fn fence(line: &str) -> Option<&str> {
    line.trim_start_matches(' ').strip_prefix("```")
}

/// A line of a Markdown file, with its number, outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = fence(line).is_some();
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// The code blocks: the line and the info string of each, and its text.
pub(crate) fn blocks(text: &str) -> Vec<(usize, &str, String)> {
    let mut found: Vec<(usize, &str, String)> = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(info) = fence(line) {
            fenced = !fenced;
            if fenced {
                found.push((number, info, String::new()));
            }
        } else if let Some((_, _, text)) = found.last_mut().filter(|_| fenced) {
            text.push_str(line);
            text.push('\n');
        }
    }
    found
}

/// The names of the steps of `.ci/run`.
pub(crate) fn steps(ci: &str) -> Vec<&str> {
    let lines = ci.lines().filter_map(|line| line.trim_start().strip_prefix("step '"));
    lines.filter_map(|line| line.split('\'').next()).collect()
}

/// What is wrong with an excuse: no reason, or steps and files that do not exist.
fn wrong_excuse(rest: &str, steps: &[&str], exists: &dyn Fn(&str) -> bool) -> Option<String> {
    let inside = |start| rest.strip_prefix(start).and_then(|why| why.strip_suffix('"'));
    let unknown = |step: &str| {
        let known = steps.contains(&step);
        (!known).then(|| format!("{step:?} is not a step of .ci/run: it has {steps:?}"))
    };
    if let Some(named) = inside(RUN_BY) {
        // A remark in brackets may follow the name.
        let names = named.split(';').map(|part| part.split(" (").next().unwrap_or(part).trim());
        return names.map(unknown).find(Option::is_some).flatten();
    }
    let Some(why) = inside(NOT_RUN).filter(|why| why.len() > 3 && !why.contains('"')) else {
        return Some(
            "a block of commands is run by `.ci/documents`, or says `ci=\"run by: STEP; STEP\"` or \
             `ci=\"not run: WHY\"`"
                .into(),
        );
    };
    let named = why.split("step '").skip(1).filter_map(|rest| rest.split('\'').next());
    let words = why.split([' ', ',', ';']).filter(|word| word.contains('/'));
    let lost = words.filter(|path| !exists(path)).map(|path| format!("{path} does not exist"));
    named.filter_map(unknown).chain(lost).next()
}

/// Code blocks without a known language, and blocks of commands that are neither run nor excused.
/// `exists` is asked for the files that an excuse names.
pub(crate) fn unclear_blocks(
    text: &str,
    steps: &[&str],
    exists: &dyn Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, info, _) in blocks(text) {
        let end = info.find([' ', ',']).unwrap_or(info.len());
        let (language, rest) = info.split_at(end);
        let is_run = if language == "sh" { rest.is_empty() } else { rest == " worker" };
        if !LANGUAGES.contains(&language) {
            let what = format!("code block of language {language:?}: use one of {LANGUAGES:?}");
            findings.push(Finding::new(line, what));
        } else if PROGRAMS.contains(&language) && !is_run {
            let wrong = wrong_excuse(rest, steps, exists);
            findings.extend(wrong.map(|what| Finding::new(line, what)));
        }
    }
    findings
}

/// A configuration as a page shows it: without its comments, and indented with spaces.
pub(crate) fn without_comments(configuration: &str) -> String {
    let kept = configuration.lines().filter(|line| !line.trim_start().starts_with('#'));
    kept.map(|line| line.replace('\t', "    ") + "\n").collect()
}

/// Tests that a table names beside their file and that no file has: `names` are those of all
/// functions. A `*` at the end stands in the place of the rest of a name.
pub(crate) fn unknown_tests(text: &str, names: &BTreeSet<&str>) -> Vec<Finding> {
    let rows = prose(text).filter(|(_, line)| line.starts_with('|') && line.contains(".rs`"));
    let mut findings = Vec::new();
    for (number, row) in rows {
        let quoted = row.split('`').skip(1).step_by(2);
        let tests = quoted.filter(|name| name.matches('_').count() > 3 && !name.contains('/'));
        let is_known = |name: &&str| match name.strip_suffix('*') {
            Some(start) => names.iter().any(|known| known.starts_with(start)),
            None => names.contains(name),
        };
        let unknown = tests.filter(|name| !is_known(name));
        findings.extend(unknown.map(|name| Finding::new(number, format!("no test is {name}"))));
    }
    findings
}

/// Links from doc comments into the book: the page, and the heading if there is one. `page` gives
/// the text of a page of `docs/`.
pub(crate) fn dead_book_links(rust: &str, page: &dyn Fn(&str) -> Option<String>) -> Vec<Finding> {
    let is_dead = |target: &str| {
        let (name, heading) = target.split_once('#').unwrap_or((target, ""));
        let text = name.strip_suffix(".html").and_then(|name| page(&format!("{name}.md")));
        let Some(text) = text else { return true };
        !heading.is_empty() && !anchors(&text).iter().any(|anchor| anchor == heading)
    };
    let dead = book_links(rust).into_iter().filter(|link| is_dead(&link.what));
    dead.map(|link| Finding::new(link.line, format!("{} is not in the book", link.what))).collect()
}

/// The pages of the book that doc comments link to.
pub(crate) fn book_links(rust: &str) -> Vec<Finding> {
    let comments = (1..).zip(rust.lines()).filter(|(_, line)| line.trim_start().starts_with("//"));
    let targets = comments.flat_map(|(number, line)| {
        let rests = line.split("](../../book/").skip(1);
        rests.filter_map(move |rest| Some(Finding::new(number, rest.split_once(')')?.0)))
    });
    targets.collect()
}

/// The targets of links to files and headings, as they are written.
pub(crate) fn links(text: &str) -> Vec<Finding> {
    let is_ours = |target: &&str| !target.contains("://");
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let targets = targets.map(|(target, _)| target).filter(is_ours);
        found.extend(targets.map(|target| Finding::new(number, target)));
    }
    found
}

/// The names by which links reach the headings of a page, as web sites make them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let titles = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then_some(title.trim())
    });
    titles.map(anchor).collect()
}

fn anchor(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let dashed = |c: char| if c == ' ' { '-' } else { c };
    title.to_lowercase().chars().filter(kept).map(dashed).collect()
}

/// Links of a page in `folder` to files or headings that do not exist. `read` gives the text of a
/// Markdown file.
pub(crate) fn dead_links(text: &str, folder: &Path) -> Vec<Finding> {
    let is_dead = |target: &str| {
        let (path, heading) = target.split_once('#').unwrap_or((target, ""));
        let file = folder.join(path);
        if !path.is_empty() && !file.exists() {
            return true;
        }
        let other = std::fs::read_to_string(&file).unwrap_or_default();
        let page = if path.is_empty() { text } else { &other };
        !heading.is_empty() && !anchors(page).iter().any(|anchor| anchor == heading)
    };
    let dead = links(text).into_iter().filter(|link| is_dead(&link.what));
    dead.map(|link| Finding::new(link.line, format!("{} leads nowhere", link.what))).collect()
}

/// Pages that an index does not link to.
pub(crate) fn unlisted<'a>(index: &str, pages: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let listed = links(index);
    let is_listed =
        |page: &&str| listed.iter().any(|link| link.what.split('#').next() == Some(*page));
    let missing = pages.filter(|page| !is_listed(page));
    missing.map(|page| Finding::new(1, format!("{page} is not linked to"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    /// The lines of unclear blocks, where CI has two steps and one file exists.
    fn unclear(text: &str) -> Vec<usize> {
        let exists = |path: &str| path == "server/tests/here.rs";
        lines(&unclear_blocks(text, &["tests, as in README.md", "simulation"], &exists))
    }

    #[test]
    fn a_block_without_a_language_or_reason_is_found() {
        let fence = "```";
        let ok = format!(
            "{fence}sh\na\n{fence}\n{fence}rust,no_run\n{fence}\n{fence}js worker\n{fence}\n"
        );
        assert_eq!(unclear(&ok), [0_usize; 0]);
        for excuse in [
            "not run: it needs a cluster",
            "not run: minutes; step 'simulation' does less",
            "not run: an example; server/tests/here.rs does it",
            "run by: tests, as in README.md",
            "run by: simulation (a part); tests, as in README.md",
        ] {
            let excused = format!("{fence}sh ci=\"{excuse}\"\n{fence}\n");
            assert_eq!(unclear(&excused), [0_usize; 0], "{excuse}");
        }
        for wrong in [
            "",
            "bash",
            "sh ci=\"\"",
            "sh ci=\"not run: \"",
            "sh ci=\"later\"",
            "python",
            "sh ci=\"run by: another\"",
            "sh ci=\"run by: simulation; another\"",
            "sh ci=\"not run: hours; step 'another' does less\"",
            "sh ci=\"not run: an example; server/tests/gone.rs does it\"",
        ] {
            assert_eq!(unclear(&format!("{fence}{wrong}\n{fence}\n")), [1], "{wrong}");
            let indented = format!("1. a\n\n   {fence}{wrong}\n   {fence}\n");
            assert_eq!(unclear(&indented), [3], "{wrong}, in a list");
        }
    }

    #[test]
    fn the_steps_of_ci_are_found() {
        assert_eq!(steps("step 'a, b' c\n# step 'd'\n    step 'e' f\n"), ["a, b", "e"]);
    }

    #[test]
    fn a_configuration_is_shown_without_its_comments() {
        assert_eq!(without_comments("# a\nb {\n\t# c\n\td\n}\n"), "b {\n    d\n}\n");
        let page = "```nginx\nb {\n}\n```\n";
        assert_eq!(blocks(page), [(1, "nginx", "b {\n}\n".to_owned())]);
    }

    #[test]
    fn a_test_that_a_table_names_and_no_file_has_is_found() {
        let names = BTreeSet::from(["a_thing_that_is_kept_stays"]);
        let ok = "| `a.rs`: `a_thing_that_is_kept_stays`, `a_thing_that_is_*` |\n";
        assert_eq!(unknown_tests(ok, &names), []);
        let wrong = "| `a.rs`: `a_thing_that_is_gone_goes` |\n| `a.rs`: `a_thing_that_was_*` |\n";
        assert_eq!(lines(&unknown_tests(wrong, &names)), [1, 2]);
    }

    #[test]
    fn a_link_to_a_page_or_heading_that_the_book_lacks_is_found() {
        let page = |name: &str| (name == "A.md").then(|| "# Two words\n".to_owned());
        let ok = "//! [a](../../book/A.html), [b](../../book/A.html#two-words)\n";
        assert_eq!(dead_book_links(ok, &page), []);
        let wrong = "//! [a](../../book/B.html)\n/// [b](../../book/A.html#three)\n";
        assert_eq!(lines(&dead_book_links(wrong, &page)), [1, 2]);
    }

    #[test]
    fn links_to_files_are_found_and_others_are_not() {
        let text = "see [a](a.md) and [b](../b.rs#there)\n[web](https://example.org) [here](#x)";
        let found: Vec<(usize, String)> =
            links(text).into_iter().map(|link| (link.line, link.what)).collect();
        assert_eq!(found, [(1, "a.md".into()), (1, "../b.rs#there".into()), (2, "#x".into())]);
        assert!(links("```text\n[a](a.md)\n```\n").is_empty(), "code is no link");
    }

    #[test]
    fn a_link_to_a_heading_or_file_that_is_not_there_is_found() {
        let text = "# One `two`: three?\n[a](#one-two-three)\n[b](#four)\n[c](nothing-here.md)\n";
        assert_eq!(lines(&dead_links(text, Path::new("."))), [3, 4]);
    }

    #[test]
    fn a_page_that_an_index_leaves_out_is_found() {
        let found = unlisted("[a](A.md#x)", ["A.md", "B.md"].into_iter());
        assert_eq!(found, [Finding::new(1, "B.md is not linked to")]);
    }
}
