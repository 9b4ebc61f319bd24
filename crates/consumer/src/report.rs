//! What became of acknowledgements.

use std::collections::BTreeMap;
use std::sync::Arc;

use sharegroup_session::{AckFailure, AckOutcome, Acknowledgement, LockLoss};

/// Failed ranges that a report lists one by one; further ones are only counted.
const FAILED_RANGES_MAX: usize = 1000;

/// What became of the acknowledgements since the last report, by partition.
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
    fn fail(&mut self, first_offset: i64, last_offset: i64, why: AckFailure) {
        self.failed_records += offsets(first_offset, last_offset);
        if self.failed.len() < FAILED_RANGES_MAX {
            self.failed.push(FailedRange {
                first_offset,
                last_offset,
                why,
            });
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
    /// Why.
    pub why: AckFailure,
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
            (Err(why), _) => report.fail(first, last, why),
        }
    }

    /// What was settled after it was lost.
    pub(crate) fn enter_late(&mut self, topic: &Arc<str>, loss: &LockLoss) {
        let report = self.partition(topic, loss.partition.partition);
        report.fail(loss.first_offset, loss.last_offset, loss.why);
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
