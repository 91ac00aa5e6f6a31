//! Checks of doc comments: one that says no more than the name of its item is left out.

use super::Finding;

/// Words with which a short comment asks what the name should say, or points elsewhere.
const EMPTY: [&str; 18] = [
    "who",
    "whose",
    "which",
    "what",
    "when",
    "where",
    "why",
    "how",
    "whom",
    "it",
    "its",
    "they",
    "those",
    "these",
    "some",
    "everything",
    "nothing",
    "by",
];

/// Words that add nothing to those of a name.
const SMALL: [&str; 8] = ["a", "an", "the", "one", "all", "every", "of", "its"];

/// Most words that such a comment has.
const SHORT: usize = 4;

/// Doc comments of up to four words that ask a question, or repeat the name of their item.
pub(crate) fn noise(text: &str) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut findings = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_part = at > 0 && lines[at - 1].starts_with("///");
        let Some(comment) = line.strip_prefix("///").filter(|_| !is_part) else { continue };
        let rest = || lines[at + 1..].iter();
        if rest().next().is_some_and(|next| next.starts_with("///")) {
            continue;
        }
        let item = rest().find(|line| !line.starts_with("#[") && !line.is_empty());
        if is_noise(comment, item.unwrap_or(&"")) {
            let what = format!(
                "`{}` says no more than the name: say what the name does not, or leave it out",
                comment.trim()
            );
            findings.push(Finding::new(at + 1, what));
        }
    }
    findings
}

fn is_noise(comment: &str, item: &str) -> bool {
    let words = words(comment);
    // Code is the name of something else: a route, a command.
    if words.is_empty() || words.len() > SHORT || comment.contains('`') {
        return false;
    }
    EMPTY.contains(&words[0].as_str()) || repeats(&words, item)
}

/// Whether all that these words say is in the name of the item.
fn repeats(words: &[String], item: &str) -> bool {
    let name = name_words(item);
    let mut telling = words.iter().filter(|word| !SMALL.contains(&word.as_str())).peekable();
    telling.peek().is_some() && telling.all(|word| name.contains(&singular(word)))
}

fn words(comment: &str) -> Vec<String> {
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    comment.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect()
}

/// The words of the name that an item declares: of `pub(crate) struct JobAnswer {` job and answer.
fn name_words(item: &str) -> Vec<String> {
    const KEYWORDS: [&str; 10] =
        ["struct", "enum", "type", "const", "static", "fn", "trait", "async", "pub", "mut"];
    let tokens = item.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let name = tokens
        .filter(|token| !token.is_empty() && !matches!(*token, "crate" | "super" | "in"))
        .find(|token| !KEYWORDS.contains(token))
        .unwrap_or_default();
    let mut split = String::new();
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && before.is_lowercase() {
            split.push(' ');
        }
        before = c;
        split.extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    split.split_whitespace().map(singular).collect()
}

fn singular(word: &str) -> String {
    word.strip_suffix('s').unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[usize]) {
        let lines: Vec<usize> = noise(text).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expected, "{text}");
    }

    #[test]
    fn a_comment_that_asks_what_the_name_should_say_is_found() {
        for comment in
            ["Who.", "By whom.", "How many.", "What to measure.", "Those that are.", "It was."]
        {
            check(&format!("struct A {{\n    /// {comment}\n    by: u8,\n}}\n"), &[2]);
        }
    }

    #[test]
    fn a_comment_that_repeats_the_name_is_found() {
        check("/// A job.\n#[derive(Debug)]\npub(crate) struct Job {\n", &[1]);
        check("/// One job.\npub struct JobAnswer {\n", &[1]);
        check("/// All routes.\npub(crate) static ROUTES: A = b;\n", &[1]);
        check("/// The delay.\ndelay_ms: u64,\n", &[1]);
    }

    #[test]
    fn a_comment_that_says_more_is_not_found() {
        check("/// In thousandths.\nDecimal(u32),\n", &[]);
        check("/// `GET /jobs`\npub(crate) async fn jobs() {\n", &[]);
        check("/// What it is, in a whole sentence.\na: u8,\n", &[]);
        check("/// What.\n///\n/// A longer text.\na: u8,\n", &[]);
        check("// Which.\na: u8,\n", &[]);
    }
}
