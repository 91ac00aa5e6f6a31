//! The dashboard: no way for text to become markup or code, and no import that leads nowhere.

use super::{Finding, words};

/// What makes markup or code out of text, or reaches another server.
const FORBIDDEN: [&str; 10] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "style=\"",
    "javascript:",
    "http://",
    "https://",
];

/// Lines that could let text act.
pub(crate) fn dangers(text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        for word in FORBIDDEN.iter().filter(|word| lower.contains(&word.to_lowercase())) {
            found.push(Finding::new(at + 1, format!("{word} is not used in the dashboard")));
        }
        let listener = |part: &&str| part.starts_with("on") && part.contains("=\"");
        if let Some(part) = line.split_whitespace().find(listener) {
            found.push(Finding::new(at + 1, format!("{part} is a listener written as markup")));
        }
    }
    found
}

/// Imports of files that are not there.
pub(crate) fn lost_imports(text: &str, files: &[&str]) -> Vec<Finding> {
    let mut found = Vec::new();
    // An import of many names ends on a line of its own.
    let names_file = |line: &str| line.starts_with("} from ") || line.starts_with("import ");
    let whole = |line: &str| names_file(line) && line != "import {";
    for (at, line) in text.lines().enumerate().filter(|(_, line)| whole(line)) {
        let from = line.split('\'').nth(1).unwrap_or_default();
        let known = from.strip_prefix("./").is_some_and(|name| files.contains(&name));
        if !known {
            found.push(Finding::new(at + 1, format!("imports {from:?}, which is not there")));
        }
    }
    found
}

/// Words that users may not read in the string literals of a script. To forget a token is what
/// browsers call it.
pub(crate) fn unclear_literals(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, literal) in literals(text) {
        let literal = literal.to_lowercase().replace("forget token", "");
        let unclear = words::unclear_to_users(&literal).into_iter();
        findings.extend(unclear.map(|finding| Finding::new(line, finding.what)));
    }
    findings
}

/// The string literals of a script with their lines, templates included. Comments are left out.
/// A quote within a regular expression begins a literal that ends with its line.
fn literals(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut chars, mut line) = (text.chars().peekable(), 1);
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\n', _) => line += 1,
            ('/', Some('/')) => while chars.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) => {
                let mut before = ' ';
                while let Some(c) = chars.next().filter(|c| (before, *c) != ('*', '/')) {
                    line += usize::from(c == '\n');
                    before = c;
                }
            }
            ('\'' | '"' | '`', _) => {
                let (start, mut literal) = (line, String::new());
                while let Some(inner) = chars.next() {
                    line += usize::from(inner == '\n');
                    match inner {
                        '\\' => literal.extend(chars.next()),
                        _ if inner == c || (inner == '\n' && c != '`') => break,
                        _ => literal.push(inner),
                    }
                }
                found.push((start, literal));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn an_unclear_word_is_found_in_literals_of_scripts_only() {
    let comment = "/* forget */ let forget = 1; // \"forget\"";
    let script = format!("{comment}\nsay('We forget \\'it');\nb(`it\nforgets`);\n");
    let lines: Vec<usize> = unclear_literals(&script).iter().map(|found| found.line).collect();
    assert_eq!(lines, [2, 3]);
    assert_eq!(unclear_literals("b('Forget token'); // forget\n"), []);
}

#[test]
fn text_that_becomes_markup_is_found() {
    assert_eq!(dangers("node.textContent = text;"), []);
    for bad in ["a.innerHTML = b", "<p style=\"x\">", "<a onclick=\"x()\">", "fetch('https://x')"] {
        assert_eq!(dangers(bad).len(), 1, "{bad}");
    }
}

#[test]
fn an_import_that_leads_nowhere_is_found() {
    let files = ["dom.js"];
    assert_eq!(lost_imports("import { h } from './dom.js';", &files), []);
    assert_eq!(lost_imports("import {\n\th,\n} from './dom.js';", &files), []);
    let wrapped = "import {\n\th,\n} from './none.js';";
    for bad in ["import { h } from './none.js';", "import x from 'left-pad';", wrapped] {
        assert_eq!(lost_imports(bad, &files).len(), 1, "{bad}");
    }
}
