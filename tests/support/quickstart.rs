//! What the quickstart must say and leave behind.

use std::path::Path;

/// Looks at the summary's rows, and counts the lines of the two tasks' files.
///
/// # Panics
/// They are not what was produced.
pub fn check(log: &str, files: &Path, records: u64) {
    let row = |name: &str| {
        let line = log.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in:\n{log}"));
        line.split_whitespace()
            .find_map(|word| word.replace(',', "").parse::<u64>().ok())
    };
    for (name, expected) in [
        ("produced", records),
        ("written", records),
        ("distinct", records),
        ("duplicates", 0),
        ("lag of the group", 0),
    ] {
        assert_eq!(row(name), Some(expected), "{name}");
    }
    assert!(row("peak memory").unwrap() > 0);
    let lines = |task| std::fs::read_to_string(files.join(format!("orders-{task}.jsonl"))).unwrap();
    let written = lines(0).lines().count() + lines(1).lines().count();
    assert_eq!(written as u64, records);
}
