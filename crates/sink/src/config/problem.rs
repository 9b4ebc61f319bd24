//! One thing that is wrong, or odd, about a configuration.

use std::fmt;
use std::path::{Path, PathBuf};

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
    /// Line in that file, from 1; `None` where the format has none (JSON).
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
            (Some(key), Some(value)) => write!(f, ": {key}={value}")?,
            (Some(key), None) => write!(f, ": {key}")?,
            _ => {}
        }
        write!(f, ": {}", self.message)?;
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

/// Whether the value of `key` must never be shown.
pub(super) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key.ends_with("sasl.jaas.config")
        || [
            "password",
            "secret",
            "token",
            "credential",
            "passphrase",
            "user.info",
        ]
        .iter()
        .any(|word| key.contains(word))
        || key.ends_with("keystore.key")
}

/// Shown in place of a secret.
pub(super) const HIDDEN: &str = "[hidden]";
