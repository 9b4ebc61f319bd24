//! What became of acknowledgements.

use std::collections::BTreeMap;
use std::sync::Arc;

use sharegroup_session::{AckFailure, AckOutcome, Acknowledgement, LockLoss};

/// Failed ranges that a report lists one by one; further ones are only counted.
const FAILED_RANGES_MAX: usize = 1000;

/// What became of the acknowledgements since the last report, by partition.
#[must_use = "acknowledgements may have failed: their records come again"]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitReport {
    /// One entry per partition that had any.
    pub partitions: Vec<PartitionReport>,
}

impl CommitReport {
    /// Whether every acknowledgement counted.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.partitions
            .iter()
            .all(|partition| partition.failed_records == 0)
    }
}

/// What became of one partition's acknowledgements. Numbers count offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionReport {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition index.
    pub partition: i32,
    /// Confirmed by the broker.
    pub accepted: u64,
    /// Confirmed by the broker.
    pub released: u64,
    /// Confirmed by the broker.
    pub rejected: u64,
    /// Offsets without a record, confirmed by the broker.
    pub gaps: u64,
    /// Acknowledgements that did not count, or may not have.
    pub failed_records: u64,
    /// The first 1,000 of them, as ranges.
    pub failed: Vec<FailedRange>,
}

impl PartitionReport {
    fn fail(&mut self, failed: FailedRange) {
        self.failed_records += offsets(failed.first_offset, failed.last_offset);
        if self.failed.len() < FAILED_RANGES_MAX {
            self.failed.push(failed);
        }
    }
}

/// An acknowledged range that did not count, or may not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRange {
    /// First offset, inclusive.
    pub first_offset: i64,
    /// Last offset, inclusive.
    pub last_offset: i64,
    /// How the records were to be settled: redelivery of a failed accept repeats work, that of a failed
    /// release is what was wanted.
    pub how: Acknowledgement,
    /// Why.
    pub why: AckFailure,
}

impl FailedRange {
    /// Whether the acknowledgement was sent and may have counted all the same; `false` means that it
    /// certainly did not, and the records come again.
    #[must_use]
    pub const fn may_have_counted(&self) -> bool {
        matches!(self.why, AckFailure::Unknown | AckFailure::AnsweredLate)
    }
}

/// Collects outcomes between two reports.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    partitions: BTreeMap<(Arc<str>, i32), PartitionReport>,
}

impl Reporter {
    pub(crate) fn enter(&mut self, topic: &Arc<str>, outcome: &AckOutcome) {
        let (first, last) = (outcome.first_offset, outcome.last_offset);
        let report = self.partition(topic, outcome.partition.partition);
        let offsets = offsets(first, last);
        match (outcome.result, outcome.how) {
            (Ok(()), Acknowledgement::Accept) => report.accepted += offsets,
            (Ok(()), Acknowledgement::Release) => report.released += offsets,
            (Ok(()), Acknowledgement::Reject) => report.rejected += offsets,
            (Ok(()), Acknowledgement::Gap) => report.gaps += offsets,
            (Err(why), how) => report.fail(FailedRange {
                first_offset: first,
                last_offset: last,
                how,
                why,
            }),
        }
    }

    /// What was settled after it was lost.
    pub(crate) fn enter_late(&mut self, topic: &Arc<str>, loss: &LockLoss, how: Acknowledgement) {
        let report = self.partition(topic, loss.partition.partition);
        report.fail(FailedRange {
            first_offset: loss.first_offset,
            last_offset: loss.last_offset,
            how,
            why: loss.why,
        });
    }

    fn partition(&mut self, topic: &Arc<str>, partition: i32) -> &mut PartitionReport {
        self.partitions
            .entry((Arc::clone(topic), partition))
            .or_insert_with(|| PartitionReport {
                topic: Arc::clone(topic),
                partition,
                accepted: 0,
                released: 0,
                rejected: 0,
                gaps: 0,
                failed_records: 0,
                failed: Vec::new(),
            })
    }

    pub(crate) fn take(&mut self) -> CommitReport {
        CommitReport {
            partitions: std::mem::take(&mut self.partitions).into_values().collect(),
        }
    }
}

/// Offsets in an inclusive range.
pub(crate) fn offsets(first: i64, last: i64) -> u64 {
    u64::try_from(i128::from(last) - i128::from(first) + 1).unwrap_or(0)
}
