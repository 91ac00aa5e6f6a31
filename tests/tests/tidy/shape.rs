//! Checks of the shape of a Rust file: its header, its width, its length, its functions.
//!
//! They take the text of one file and never look at others.

use super::Finding;
use super::lexer::{code_only, end_of_item, find, is_name, line_of, places};

/// Lines a header may have, except that of a crate root.
pub(crate) const MAX_HEADER_LINES: usize = 10;
const MAX_COLUMNS: usize = 100;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_FILE_LINES: usize = 600;

/// The `//!` block at the top: there, with a first line that says something, and not too long.
pub(crate) fn header(text: &str, max_lines: Option<usize>) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let Some(first) = lines.first() else {
        return vec![Finding::new(1, "open the file with a `//!` header that says what it is")];
    };
    if first.trim_start_matches("//!").trim().is_empty() {
        return vec![Finding::new(
            1,
            "the first line of the header is empty: say what the file is",
        )];
    }
    match max_lines {
        Some(max) if lines.len() > max => {
            let what = format!("the header has {} lines: cut it to {max}", lines.len());
            vec![Finding::new(max + 1, what)]
        }
        _ => Vec::new(),
    }
}

/// Lines wider than the limit, counted in characters.
pub(crate) fn wide_lines(text: &str) -> Vec<Finding> {
    let widths = text.lines().map(|line| line.chars().count()).enumerate();
    let wide = widths.filter(|&(_, width)| width > MAX_COLUMNS);
    wide.map(|(index, width)| {
        Finding::new(index + 1, format!("{width} columns: break the line at {MAX_COLUMNS}"))
    })
    .collect()
}

/// A file over the limit, reported at the first line that is too many.
pub(crate) fn long_file(text: &str) -> Vec<Finding> {
    let lines = text.lines().count();
    if lines <= MAX_FILE_LINES {
        return Vec::new();
    }
    let what = format!("{lines} lines: split the file by concept, under {MAX_FILE_LINES}");
    vec![Finding::new(MAX_FILE_LINES + 1, what)]
}

/// Functions over the limit, counted from the line of `fn` to that of the closing brace.
pub(crate) fn long_functions(text: &str) -> Vec<Finding> {
    let code = code_only(text);
    let mut findings = Vec::new();
    for at in places(&code, "fn") {
        let name_at = find(&code, at + 2, |c| !c.is_whitespace());
        let name_end = find(&code, name_at, |c| !is_name(c) && c != '$');
        if name_end == name_at {
            continue; // The type `fn(…)`, not a function.
        }
        let first = line_of(&code, at);
        let lines = line_of(&code, end_of_item(&code, name_end) - 1) - first + 1;
        if lines > MAX_FUNCTION_LINES {
            let name: String = code[name_at..name_end].iter().collect();
            let what =
                format!("fn {name} has {lines} lines: split it, {MAX_FUNCTION_LINES} at most");
            findings.push(Finding::new(first, what));
        }
    }
    findings
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
    fn a_header_must_be_there_and_say_something() {
        check(&header("//! What it is.\nuse x;\n", Some(40)), &[]);
        check(&header("use x;\n", Some(40)), &[1]);
        check(&header("\n//! Too late.\n", Some(40)), &[1]);
        check(&header("//!\n//! Too late.\n", Some(40)), &[1]);
        check(&header("", Some(40)), &[1]);
    }

    #[test]
    fn a_header_is_long_only_where_no_limit_is_given() {
        let text = "//! A line.\n".repeat(41);
        check(&header(&text, Some(40)), &[41]);
        check(&header(&text, Some(41)), &[]);
        check(&header(&text, None), &[]);
    }

    #[test]
    fn width_is_counted_in_characters() {
        check(&wide_lines(&format!("a\n{}\n", "é".repeat(100))), &[]);
        check(&wide_lines(&format!("a\n{}\n", "é".repeat(101))), &[2]);
    }

    #[test]
    fn a_file_of_601_lines_is_too_long() {
        check(&long_file(&"x\n".repeat(600)), &[]);
        check(&long_file(&"x\n".repeat(601)), &[601]);
    }

    fn function(body_lines: usize) -> String {
        format!("// fn\n/// fn doc\npub fn a<'a>() {{\n{}}}\n", "    x();\n".repeat(body_lines))
    }

    #[test]
    fn a_function_of_71_lines_is_too_long() {
        check(&long_functions(&function(68)), &[]);
        check(&long_functions(&function(69)), &[3]);
    }

    #[test]
    fn braces_in_text_do_not_end_a_function() {
        let text = function(69).replacen("x();", r#"x("}", '}'); // }"#, 3);
        check(&long_functions(&text), &[3]);
    }

    #[test]
    fn a_method_is_measured_and_a_declaration_or_fn_type_is_not() {
        let method = format!("impl A {{\n{}}}\n", function(69));
        check(&long_functions(&method), &[4]);
        let declared = format!("trait A {{\n fn a(&self);\n{}}}\n", "// x\n".repeat(90));
        check(&long_functions(&declared), &[]);
        let typed = format!("struct A {{\n a: fn(u8),\n{}}}\n", "// x\n".repeat(90));
        check(&long_functions(&typed), &[]);
    }
}
