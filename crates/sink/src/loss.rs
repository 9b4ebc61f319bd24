//! Names records that the group may never deliver again: in the log, and one line each in
//! `share.loss.file`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use sharegroup_consumer::LockLoss;

use crate::metrics::unix_time_ms;
use crate::record::{SinkBatch, SinkRecord};

/// Where lost records are named.
#[derive(Clone, Debug)]
pub(crate) struct LossLog {
    pub(crate) file: Option<PathBuf>,
    pub(crate) group_id: String,
    /// The task: `name-0`.
    pub(crate) task: String,
}

impl LossLog {
    /// Names every record of `batch`; the batch holds only such records.
    pub(crate) fn name(&self, batch: &SinkBatch, reason: &str) {
        if batch.is_empty() {
            return;
        }
        tracing::error!(
            task = self.task,
            group = self.group_id,
            records = %batch.describe(),
            reason,
            "Records on their last allowed delivery were not written and may be archived by the broker."
        );
        let records = batch.records();
        self.append(records.map(|record| {
            let SinkRecord {
                partition,
                offset,
                delivery_count,
                ..
            } = record;
            self.line(record.topic, partition, offset, delivery_count, reason)
        }));
    }

    /// Names offsets whose records are not at hand: their lock was lost while nobody could write
    /// them.
    pub(crate) fn name_offsets(&self, topic: &str, loss: &LockLoss, reason: &str) {
        let LockLoss {
            first_offset,
            last_offset,
            ..
        } = *loss;
        let partition = loss.partition.partition;
        tracing::error!(
            task = self.task,
            group = self.group_id,
            records = %format_args!("{topic}-{partition} offsets {first_offset}-{last_offset}"),
            reason,
            "Records on their last allowed delivery were not accepted and may be archived by the broker."
        );
        let named = named_offsets(first_offset, last_offset);
        self.append(
            named.map(|offset| self.line(topic, partition, offset, loss.delivery_count, reason)),
        );
    }

    /// Writes lines to the file, if there is one; without one none is made.
    fn append(&self, lines: impl Iterator<Item = String>) {
        let Some(path) = &self.file else {
            return;
        };
        let lines: String = lines.collect();
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .and_then(|mut file| {
                file.write_all(lines.as_bytes())?;
                file.sync_data()
            });
        if let Err(error) = written {
            // The names must not be lost with the file.
            tracing::error!(file = %path.display(), %error, lines, "The loss file can't be written.");
        }
    }

    fn line(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
        delivery_count: i16,
        reason: &str,
    ) -> String {
        let line = serde_json::json!({
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "delivery_count": delivery_count,
            "group": self.group_id,
            "task": self.task,
            "reason": reason,
            "time_ms": unix_time_ms(),
        });
        format!("{line}\n")
    }
}

/// Offsets of a lost range that get a line each. The range is the broker's word: a hostile one is
/// never walked to its end.
fn named_offsets(first: i64, last: i64) -> impl Iterator<Item = i64> {
    (first..=last).take(OFFSETS_NAMED_MAX)
}

/// Most offsets of one lost range that get a line each, all of them stand in the log: the largest
/// window of record locks that a broker allows per partition.
const OFFSETS_NAMED_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_range_is_not_walked_to_its_end() {
        assert_eq!(named_offsets(0, i64::MAX).count(), OFFSETS_NAMED_MAX);
        assert_eq!(named_offsets(5, 7).collect::<Vec<_>>(), [5, 6, 7]);
    }
}
