//! Names records that the group may never deliver again: in the log, and one line each in
//! `share.loss.file`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

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
            "Records were not written and may never be delivered again."
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

    /// Names every offset of a range whose records are not at hand.
    pub(crate) fn name_range(&self, range: &LostRange) {
        self.log(range);
        self.write(range);
    }

    fn log(&self, range: &LostRange) {
        let LostRange {
            topic,
            partition,
            first_offset,
            last_offset,
            reason,
            ..
        } = range;
        tracing::error!(
            task = self.task,
            group = self.group_id,
            records = %format_args!("{topic}-{partition} offsets {first_offset}-{last_offset}"),
            reason,
            "Records were not accepted and may never be delivered again."
        );
    }

    /// Writes the lines of a range.
    fn write(&self, range: &LostRange) {
        let LostRange {
            topic,
            partition,
            delivery_count,
            reason,
            ..
        } = range;
        let named = named_offsets(range.first_offset, range.last_offset);
        self.append(
            named.map(|offset| self.line(topic, *partition, offset, *delivery_count, reason)),
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

/// Offsets whose records are not at hand: they were lost while nobody could write them.
#[derive(Debug)]
pub(crate) struct LostRange {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) first_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) delivery_count: i16,
    pub(crate) reason: String,
}

/// Names ranges without ever waiting, for the thread that heartbeats and renewals need: in the log at
/// once, in the file by a task of its own.
#[derive(Debug)]
pub(crate) struct LossQueue {
    log: LossLog,
    /// `None` without a file.
    ranges: Option<mpsc::Sender<LostRange>>,
}

impl LossQueue {
    /// Must be called within a tokio runtime. The writer ends when the queue is dropped.
    pub(crate) fn new(log: LossLog) -> (Self, LossWriter) {
        if log.file.is_none() {
            return (Self { log, ranges: None }, LossWriter(None));
        }
        let (sender, mut receiver) = mpsc::channel::<LostRange>(RANGES_QUEUED_MAX);
        let file = log.clone();
        let writer = tokio::spawn(async move {
            while let Some(range) = receiver.recv().await {
                let file = file.clone();
                if let Err(error) = spawn_blocking(move || file.write(&range)).await {
                    tracing::error!(%error, "The loss file's writer failed; the log has the names.");
                }
            }
        });
        let ranges = Some(sender);
        (Self { log, ranges }, LossWriter(Some(writer)))
    }

    /// Names a range.
    pub(crate) fn name(&self, range: LostRange) {
        self.log.log(&range);
        if let Some(ranges) = &self.ranges
            && ranges.try_send(range).is_err()
        {
            tracing::error!(
                task = self.log.task,
                "The loss file can't be written as fast as records are lost; those above stand in the log alone."
            );
        }
    }
}

/// Writes what a [`LossQueue`] was given.
#[derive(Debug)]
pub(crate) struct LossWriter(Option<JoinHandle<()>>);

impl LossWriter {
    /// Waits until everything is written; the queue must be gone.
    pub(crate) async fn finish(&mut self, within: Duration) {
        let Some(writer) = self.0.take() else {
            return;
        };
        if timeout(within, writer).await.is_err() {
            tracing::error!("The loss file was not written in time; the log has the names.");
        }
    }
}

/// Ranges that wait to be written: each is a lost acquisition or a part of it.
const RANGES_QUEUED_MAX: usize = 1024;

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

    fn lost(offset: i64) -> LostRange {
        LostRange {
            topic: Arc::from("orders"),
            partition: 3,
            first_offset: offset,
            last_offset: offset,
            delivery_count: 5,
            reason: "the lock was lost".to_owned(),
        }
    }

    fn log(file: PathBuf) -> LossLog {
        LossLog {
            file: Some(file),
            group_id: "g".to_owned(),
            task: "out-0".to_owned(),
        }
    }

    #[tokio::test]
    async fn every_range_is_in_the_file_once_the_writer_has_finished() {
        let file = std::env::temp_dir().join(format!("loss-queue-{}", std::process::id()));
        let (queue, mut writer) = LossQueue::new(log(file.clone()));
        (0..100).for_each(|offset| queue.name(lost(offset)));
        drop(queue);
        writer.finish(Duration::from_secs(10)).await;
        let lines = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(lines.lines().count(), 100);
        assert!(lines.contains(r#""offset":99"#), "{lines}");
    }

    /// A pipe that nobody reads blocks whoever opens it, as a disk that hangs does.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_disk_that_hangs_blocks_neither_who_names_nor_the_end() {
        let file = std::env::temp_dir().join(format!("loss-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&file).status();
        assert!(made.unwrap().success());
        let (queue, mut writer) = LossQueue::new(log(file.clone()));
        for offset in 0..2 * RANGES_QUEUED_MAX as i64 {
            queue.name(lost(offset));
        }
        drop(queue);
        writer.finish(Duration::from_millis(200)).await;
        // Lets the blocked thread go.
        drop(std::fs::File::open(&file));
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_hostile_range_is_not_walked_to_its_end() {
        assert_eq!(named_offsets(0, i64::MAX).count(), OFFSETS_NAMED_MAX);
        assert_eq!(named_offsets(5, 7).collect::<Vec<_>>(), [5, 6, 7]);
    }
}
