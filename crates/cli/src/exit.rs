//! How the program ends.

use std::fmt;
use std::process::ExitCode;

use crate::screen::Screen;
use crate::signals::Sign;

/// How the program ends; [`EXIT_CODES`] says the same to its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for is done.
    Done,
    /// Something failed.
    Failed,
    /// Arguments or configuration are wrong: nothing was started.
    Usage,
    /// `--exit-when-idle-max` is over.
    IdleMax,
    /// Cut off by a signal, without cleaning up.
    CutOff(Sign),
}

/// For `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done, or stopped by SIGTERM or Ctrl-C with everything settled
  1    failed: a task is FAILED, the cluster refused or did not confirm what was written, records were named as lost (but for
       those that errors.tolerance=all without a dead-letter topic, or for the broker to keep, rejects), or a stop was not
       finished in time; `validate --connect`: the cluster or a target isn't ready
  2    wrong arguments or configuration: nothing was started
  3    `run --exit-when-idle`: not idle, but nothing moved for --exit-when-idle-max
  130, 143   Ctrl-C or SIGTERM before the work began or, in `topics` and `quickstart`, before it was done; a second one
             always: ended at once, what is held comes again when its locks end";

impl Exit {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::IdleMax => 3,
            Self::CutOff(Sign::Interrupt) => 130,
            Self::CutOff(Sign::Terminate) => 143,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Everything that is wrong with arguments or configuration, all at once.
#[derive(Debug)]
pub(crate) struct Problems {
    /// What keeps the command from starting; not empty.
    pub(crate) errors: Vec<String>,
    /// What is odd besides.
    pub(crate) warnings: Vec<String>,
}

impl Problems {
    /// A single one.
    pub(crate) fn one(error: impl Into<String>) -> Self {
        Self {
            errors: vec![error.into()],
            warnings: Vec::new(),
        }
    }

    /// Prints them, up to [`SHOWN_MAX`] of each kind.
    pub(crate) fn show(&self, screen: &Screen) {
        self.show_up_to(SHOWN_MAX, screen);
    }

    /// Prints them, up to so many of each kind: a file of another kind has something wrong in every line.
    pub(crate) fn show_up_to(&self, shown_max: usize, screen: &Screen) {
        let show = |texts: &[String], say: &dyn Fn(&str)| {
            for text in texts.iter().take(shown_max) {
                say(text);
            }
            if texts.len() > shown_max {
                say(&format!("and {} more", texts.len() - shown_max));
            }
        };
        show(&self.warnings, &|text| screen.warning(text));
        show(&self.errors, &|text| screen.error(text));
    }
}

const SHOWN_MAX: usize = 20;

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.errors.join("; "))
    }
}

impl std::error::Error for Problems {}

/// An error with those causes that it does not quote itself.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .fold(error.to_string(), |text, cause| {
            let cause = cause.to_string();
            if text.contains(&cause) {
                text
            } else {
                format!("{text}: {cause}")
            }
        })
}

/// A signal came before anything was begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interrupted(pub(crate) Sign);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended by {}", self.0.name())
    }
}

impl std::error::Error for Interrupted {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow::anyhow!("certificate has expired")
            .context("no connection: certificate has expired")
            .context("topic not created");
        assert_eq!(
            with_causes(&error),
            "topic not created: no connection: certificate has expired"
        );
    }
}
