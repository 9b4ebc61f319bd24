//! The known key that a misspelt one was meant to be.

use std::borrow::Cow;

/// The known key that `key` most resembles, if one is close enough to be meant.
///
/// Case and the separators `_`, `-` and `.` don't count; beyond that one slip is allowed in short
/// keys and two in keys of more than five characters.
#[must_use]
pub fn nearest<'a>(key: &str, candidates: impl Iterator<Item = Cow<'a, str>>) -> Option<String> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '-'], ".");
    let wanted: Vec<char> = plain(key).chars().collect();
    let slips_max = if wanted.len() > 5 { 2 } else { 1 };
    candidates
        .map(|candidate| {
            let characters: Vec<char> = plain(&candidate).chars().collect();
            (slips(&wanted, &characters, slips_max), candidate)
        })
        .filter(|(slips, _)| *slips <= slips_max)
        .min_by(|a, b| a.cmp(b))
        .map(|(_, candidate)| candidate.into_owned())
}

/// Characters to insert, delete, replace or swap with their neighbour to make one of the other
/// (optimal string alignment distance); any number above `slips_max` once it is above.
fn slips(a: &[char], b: &[char], slips_max: usize) -> usize {
    if a.len().abs_diff(b.len()) > slips_max {
        return slips_max + 1;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_slips_and_not_foreign_words() {
        let known = ["tasks.max", "topics", "connector.class", "file", "name"];
        let near = |key: &str| nearest(key, known.iter().map(|name| Cow::Borrowed(*name)));
        for (key, right) in [
            ("task.max", "tasks.max"),
            ("tasks_max", "tasks.max"),
            ("TASKS.MAX", "tasks.max"),
            ("topic", "topics"),
            ("tpoics", "topics"),
            ("conector.clas", "connector.class"),
            ("files", "file"),
        ] {
            assert_eq!(near(key).as_deref(), Some(right), "{key}");
        }
        for foreign in ["mode", "my.own.key", "class", "table.name.format"] {
            assert_eq!(near(foreign), None, "{foreign}");
        }
    }
}
