//! One thing that is wrong, or odd, about a configuration.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use super::providers::Providers;

/// How bad a [`ConfigProblem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Work can start all the same.
    Warning,
    /// Nothing is started.
    Error,
}

/// One thing that is wrong with a configuration: where, what, and what to do about it.
///
/// Printed as `FILE:LINE: KEY=VALUE: MESSAGE; ADVICE`. Values of secret keys are never kept here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigProblem {
    /// Whether it keeps work from starting.
    pub severity: Severity,
    /// File it was found in.
    pub file: PathBuf,
    /// Line in that file, from 1; `None` where none is to blame, or it isn't known.
    pub line: Option<u32>,
    /// The key, as written in the file.
    pub key: Option<String>,
    /// Its value; `[hidden]` for secrets.
    pub value: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub advice: Option<String>,
}

impl ConfigProblem {
    /// An error of a whole file.
    pub fn of_file(file: &Path, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: file.to_owned(),
            line: None,
            key: None,
            value: None,
            message: message.into(),
            advice: None,
        }
    }

    /// The same problem, with what to do about it.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// The same problem without the value: of a key that isn't known nobody knows whether it is a
    /// secret.
    #[must_use]
    pub fn without_value(mut self) -> Self {
        self.value = None;
        self
    }

    /// The same problem as a warning.
    #[must_use]
    pub const fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Hides what providers have given.
    pub(super) fn hide(&mut self, providers: &Providers) {
        let texts = [Some(&mut self.message), self.advice.as_mut()];
        for text in texts.into_iter().flatten() {
            if let Some(hidden) = providers.without_values(text) {
                *text = hidden;
            }
        }
    }

    /// Whether it keeps work from starting.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        matches!(self.severity, Severity::Error)
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match (&self.key, &self.value) {
            (Some(key), Some(value)) => write!(f, ": {key}={}", shown(value))?,
            (Some(key), None) => write!(f, ": {key}")?,
            _ => {}
        }
        // It may quote the value, or a part of it.
        write!(f, ": {}", without_passwords(&self.message))?;
        if let Some(advice) = &self.advice {
            write!(f, "; {}", without_passwords(advice))?;
        }
        Ok(())
    }
}

/// The text with `[hidden]` for each `user:password` before an `@`, in URLs and in addresses, and for the query of each URL,
/// where passwords and tokens stand as well.
#[must_use]
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    if !text.contains('@') && !text.contains("://") {
        return Cow::Borrowed(text);
    }
    let words = text.split_inclusive(ends_word).map(|word| {
        let start = word.find("://").map_or(0, |at| at + "://".len());
        match word[start..].rsplit_once('@') {
            Some((user, host)) if user.contains(':') => {
                let before = &word[..start];
                Cow::Owned(format!(
                    "{before}{HIDDEN}@{}",
                    without_query(host, start > 0)
                ))
            }
            _ => without_query(word, start > 0),
        }
    });
    Cow::Owned(words.collect())
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | '`')
}

/// A word without its query, if it is a URL, and with the character that ends it.
fn without_query(word: &str, is_url: bool) -> Cow<'_, str> {
    match word.split_once('?') {
        Some((before, query)) if is_url && !query.trim_end().is_empty() => {
            let end = query.trim_start_matches(|c| !ends_word(c));
            Cow::Owned(format!("{before}?{HIDDEN}{end}"))
        }
        _ => Cow::Borrowed(word),
    }
}

/// A value in one line: certificates in PEM have many.
pub(super) fn shown(value: &str) -> Cow<'_, str> {
    match value.split_once('\n') {
        Some((first, _)) => Cow::Owned(format!("{}…", without_passwords(first))),
        None => without_passwords(value),
    }
}

/// Whether the value of `key` must never be shown.
pub(super) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    // Parts of words, so that a misspelt key hides its value too.
    [
        "pas",
        "pwd",
        "jaas",
        "secret",
        "token",
        "credential",
        "user.info",
    ]
    .iter()
    .any(|word| key.contains(word))
        || key.ends_with("keystore.key")
}

/// Shown in place of a secret.
pub(super) const HIDDEN: &str = "[hidden]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_before_a_host_are_hidden() {
        for (text, expected) in [
            (
                "postgres://me:s3cret@db:5432/x",
                "postgres://[hidden]@db:5432/x",
            ),
            (
                "http://me:a/b@h, me:x@i:1",
                "http://[hidden]@h, [hidden]@i:1",
            ),
            ("amqp://me:s@e=cret@h", "amqp://[hidden]@h"),
            ("\"https://u:p@h\" is odd", "\"https://[hidden]@h\" is odd"),
            ("`u:p@h` is odd", "`[hidden]@h` is odd"),
            (
                "http://h/x?token=s3cret is odd",
                "http://h/x?[hidden] is odd",
            ),
            (
                "\"http://me:p@h?t=s3cret\"",
                "\"http://[hidden]@h?[hidden]\"",
            ),
            (
                "jdbc:postgresql://h/db?user=me&password=s3cret",
                "jdbc:postgresql://h/db?[hidden]",
            ),
            ("http://h/x?", "http://h/x?"),
            ("odd? or not", "odd? or not"),
            ("me@example.org", "me@example.org"),
            ("localhost:9092", "localhost:9092"),
        ] {
            assert_eq!(without_passwords(text), expected);
        }
    }
}
