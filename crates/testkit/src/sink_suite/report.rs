//! What came of the checks, a line each.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::target::TargetError;

/// What came of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Its name.
    pub name: &'static str,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// Whether a promise is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is.
    Kept,
    /// It could not be tried, for this reason.
    Skipped(String),
    /// It is not.
    Broken(Broken),
}

/// A promise that isn't kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// What was promised.
    pub promised: String,
    /// What was seen instead.
    pub seen: String,
    /// Numbers of the records concerned, ascending; none where it isn't about single ones.
    pub records: Vec<u64>,
}

/// What came of all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Report {
    checks: Vec<CheckReport>,
}

impl Report {
    pub(super) fn add(&mut self, check: CheckReport) {
        self.checks.push(check);
    }

    /// The checks, in the order in which they were made.
    #[must_use]
    pub fn checks(&self) -> &[CheckReport] {
        &self.checks
    }

    /// Names of the checks whose promises aren't kept.
    #[must_use]
    pub fn broken(&self) -> Vec<&'static str> {
        self.names(|verdict| matches!(verdict, Verdict::Broken(_)))
    }

    /// Names of the checks that could not be made.
    #[must_use]
    pub fn skipped(&self) -> Vec<&'static str> {
        self.names(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    /// Whether every promise is kept that could be tried.
    ///
    /// # Errors
    /// [`PromisesBroken`]: the lines of the checks whose promises aren't.
    pub fn verdict(&self) -> Result<(), PromisesBroken> {
        let broken = self.checks.iter();
        let broken = broken.filter(|check| matches!(check.verdict, Verdict::Broken(_)));
        let lines: Vec<_> = broken.map(ToString::to_string).collect();
        if lines.is_empty() {
            return Ok(());
        }
        Err(PromisesBroken(lines.join("\n")))
    }

    fn names(&self, is_one: impl Fn(&Verdict) -> bool) -> Vec<&'static str> {
        let checks = self.checks.iter();
        let found = checks.filter(|check| is_one(&check.verdict));
        found.map(|check| check.name).collect()
    }
}

/// The sum, as the suite's last line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (broken, skipped) = (self.broken().len(), self.skipped().len());
        let kept = self.checks.len() - broken - skipped;
        let took: Duration = self.checks.iter().map(|check| check.took).sum();
        write!(
            f,
            "{kept} ok, {broken} failed, {skipped} skipped  {:.1} s",
            took.as_secs_f64()
        )
    }
}

/// The check's line; a broken promise takes some more.
impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, took) = (self.name, self.took.as_secs_f64());
        match &self.verdict {
            Verdict::Kept => write!(f, "ok       {name}  {took:.1} s"),
            Verdict::Skipped(why) => write!(f, "skipped  {name}: {why}"),
            Verdict::Broken(broken) => write!(f, "FAILED   {name}  {took:.1} s\n{broken}"),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  promised: {}\n  seen:     {}",
            self.promised, self.seen
        )?;
        let Some(shown) = self.records.get(..self.records.len().min(SHOWN_MAX)) else {
            return Ok(());
        };
        if shown.is_empty() {
            return Ok(());
        }
        let numbers: Vec<_> = shown.iter().map(ToString::to_string).collect();
        write!(f, "\n  records:  {}", numbers.join(", "))?;
        match self.records.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Promises that a sink doesn't keep.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sink breaks promises:\n{0}")]
pub struct PromisesBroken(String);

/// As `unwrap` shows it.
impl fmt::Debug for PromisesBroken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a check ends before its end.
#[derive(Debug)]
pub(super) enum Ended {
    /// It can't be made.
    Skipped(String),
    /// The promise is broken.
    Broken(Broken),
}

/// What a check answers, and its steps.
pub(super) type Checked<T = ()> = Result<T, Ended>;

impl Ended {
    pub(super) fn broken(promised: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::Broken(Broken {
            promised: promised.into(),
            seen: seen.into(),
            records: Vec::new(),
        })
    }

    /// The same about these records.
    pub(super) fn about(self, records: impl IntoIterator<Item = u64>) -> Self {
        match self {
            Self::Broken(mut broken) => {
                let records: BTreeSet<_> = records.into_iter().collect();
                broken.records = records.into_iter().collect();
                Self::Broken(broken)
            }
            skipped @ Self::Skipped(_) => skipped,
        }
    }
}

impl From<TargetError> for Ended {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::CantPlay(why) => Self::Skipped(why),
            TargetError::Broken(error) => {
                Self::broken("the target does what the suite asks of it", error)
            }
        }
    }
}

/// Fails a check unless the condition holds.
pub(super) fn ensure(holds: bool, promised: &str, seen: impl FnOnce() -> String) -> Checked {
    if holds {
        return Ok(());
    }
    Err(Ended::broken(promised, seen()))
}

/// Records that a line names.
const SHOWN_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &'static str, verdict: Verdict) -> CheckReport {
        CheckReport {
            name,
            verdict,
            took: Duration::from_millis(340),
        }
    }

    #[test]
    fn a_check_is_a_line_and_a_broken_promise_says_what_was_seen_of_which_records() {
        let Ended::Broken(broken) = Ended::broken("all arrive", "some don't").about(0..25) else {
            unreachable!("it is broken");
        };
        let mut report = Report::default();
        report.add(check("one", Verdict::Kept));
        report.add(check("two", Verdict::Skipped("no network".to_owned())));
        assert!(report.verdict().is_ok());
        report.add(check("three", Verdict::Broken(broken)));
        let lines: Vec<_> = report.checks().iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "ok       one  0.3 s");
        assert_eq!(lines[1], "skipped  two: no network");
        let records = "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19";
        assert_eq!(
            lines[2],
            format!(
                "FAILED   three  0.3 s\n  promised: all arrive\n  seen:     some don't\n  records:  {records} and 5 more"
            )
        );
        assert_eq!(report.to_string(), "1 ok, 1 failed, 1 skipped  1.0 s");
        assert_eq!(report.broken(), ["three"]);
        assert!(format!("{:?}", report.verdict()).contains("some don't"));
    }
}
