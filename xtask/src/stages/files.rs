//! Rules for files as they are in git.

use std::fs;
use std::process::Command;

use anyhow::ensure;

use crate::run::{Context, Count};

const LINES_MAX: usize = 800;

/// Heading that the documentation of each public async function has.
const CANCEL_SAFETY: &str = "# Cancel safety";
/// The table of features and the tests that prove them.
const FEATURES: &str = "docs/features.md";

/// Folders that exist on one machine only. In two parts, so that this file does not break its own rule.
const MACHINE_FOLDERS: [(&str, &str); 4] = [
    ("/ho", "me/"),
    ("/ro", "ot/"),
    ("/wo", "rk/"),
    ("/Us", "ers/"),
];

pub(crate) fn check(context: &Context) -> anyhow::Result<Count> {
    let mut git = Command::new("git");
    // Also what is not added yet, so that a mistake shows before the commit.
    git.current_dir(&context.root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let mut complaints = Vec::new();
    for name in context
        .output(&mut git)?
        .split('\0')
        .filter(|name| !name.is_empty())
    {
        // A file that was removed and not committed yet, or one that is not text.
        if let Ok(text) = fs::read_to_string(context.root.join(name)) {
            complaints.extend(complaints_about(name, &text));
        }
    }
    let features = fs::read_to_string(context.root.join(FEATURES))?;
    complaints.extend(missing_tests(&features, |file| {
        fs::read_to_string(context.root.join(file)).unwrap_or_default()
    }));
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(Count::ONE)
}

/// Tests that the table of features names, as `FILE::FUNCTION`, and that aren't there.
fn missing_tests(features: &str, read: impl Fn(&str) -> String) -> Vec<String> {
    let named = features
        .split('`')
        .filter_map(|code| code.split_once(".rs::"));
    let missing = |(file, function): (&str, &str)| {
        let file = format!("{file}.rs");
        let is_there = read(&file).contains(&format!("fn {function}("));
        (!is_there).then(|| format!("{FEATURES}: no test {file}::{function}"))
    };
    named.filter_map(missing).collect()
}

fn complaints_about(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if name.ends_with(".rs") && lines > LINES_MAX {
        complaints.push(format!(
            "{name}: {lines} lines, at most {LINES_MAX} are allowed: split it"
        ));
    }
    if name.starts_with("crates/") && name.contains("/src/") {
        complaints.extend(undocumented_cancellations(text).map(|line| {
            format!("{name}:{line}: what happens when this future is dropped? `{CANCEL_SAFETY}`")
        }));
    }
    for (index, line) in text.lines().enumerate() {
        if MACHINE_FOLDERS
            .iter()
            .any(|(start, end)| has_path(line, &format!("{start}{end}")))
        {
            complaints.push(format!(
                "{name}:{}: a path of one machine: {}",
                index + 1,
                line.trim()
            ));
        }
    }
    complaints
}

/// Lines of public async functions whose documentation doesn't say what becomes of a dropped future.
fn undocumented_cancellations(text: &str) -> impl Iterator<Item = usize> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_silent = |index: &usize| {
        let above = lines[..*index].iter().rev();
        let mut above = above.take_while(|line| line.starts_with("///") || line.starts_with('#'));
        lines[*index].starts_with("pub async fn") && !above.any(|line| line.contains(CANCEL_SAFETY))
    };
    let silent: Vec<usize> = (0..lines.len()).filter(is_silent).collect();
    silent.into_iter().map(|index| index + 1)
}

/// Whether an absolute path begins with `folder` in the line; `site.org/folder/` is none.
fn has_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| {
            !(c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '~' | '}' | ')' | '$'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found_and_addresses_are_not() {
        let path = format!("{}{}me/x", "/ho", "me/");
        assert_eq!(
            complaints_about("a.md", &format!("ok\nsee {path}")).len(),
            1
        );
        assert_eq!(complaints_about("a.md", &path).len(), 1);
        assert!(
            complaints_about("a.md", &format!("https://site.org{path} and ~{path}")).is_empty()
        );
    }

    #[test]
    fn public_async_function_without_its_cancel_safety_is_named() {
        let documented =
            "/// Waits.\n///\n/// # Cancel safety\n/// Safe.\n#[must_use]\npub async fn wait() {}";
        assert!(complaints_about("crates/a/src/lib.rs", documented).is_empty());
        let silent = format!("{documented}\n/// Waits.\npub async fn wait_again() {{}}");
        let complaints = complaints_about("crates/a/src/lib.rs", &silent);
        assert!(complaints[0].contains("lib.rs:8"), "{complaints:?}");
        assert!(complaints_about("crates/a/tests/a.rs", &silent).is_empty());
    }

    #[test]
    fn test_that_a_table_names_and_nobody_has_is_found() {
        let table = "| a | `x.rs::is_there` | b | `x.rs::is_gone`, `x.rs` |";
        let read = |file: &str| match file {
            "x.rs" => "async fn is_there() {}".to_owned(),
            _ => String::new(),
        };
        let missing = missing_tests(table, read);
        assert_eq!(missing, ["docs/features.md: no test x.rs::is_gone"]);
    }

    #[test]
    fn long_source_file_is_named() {
        assert!(complaints_about("a.rs", &"x\n".repeat(800)).is_empty());
        assert_eq!(complaints_about("a.rs", &"x\n".repeat(801)).len(), 1);
        assert!(complaints_about("a.md", &"x\n".repeat(801)).is_empty());
    }
}
