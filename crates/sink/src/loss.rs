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
        let mut lines = String::new();
        for record in batch.records() {
            lines.push_str(&self.line(&record, reason));
            lines.push('\n');
        }
        self.append(&lines);
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
        // Bounded by what was held.
        let lines: String = (first_offset..=last_offset)
            .map(|offset| {
                let line = serde_json::json!({
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "delivery_count": loss.delivery_count,
                    "group": self.group_id,
                    "task": self.task,
                    "reason": reason,
                    "time_ms": unix_time_ms(),
                });
                format!("{line}\n")
            })
            .collect();
        self.append(&lines);
    }

    fn append(&self, lines: &str) {
        let Some(path) = &self.file else {
            return;
        };
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

    fn line(&self, record: &SinkRecord<'_>, reason: &str) -> String {
        serde_json::json!({
            "topic": &**record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "delivery_count": record.delivery_count,
            "group": self.group_id,
            "task": self.task,
            "reason": reason,
            "time_ms": unix_time_ms(),
        })
        .to_string()
    }
}
