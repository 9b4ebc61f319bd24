//! Swallows records, as fast or as slowly as it is told to: what a group, a network and this runtime
//! give without a target.
//!
//! | key | default | meaning |
//! | --- | --- | --- |
//! | `put.ms` | `0` | milliseconds that each put takes |
//! | `record.ms` | `0` | milliseconds that each record takes beyond that, one after another |
//!
//! It waits, it doesn't work: tasks that wait side by side are as many times faster, on any machine.
//! At its end a task logs how many records and bytes it has swallowed.

use std::time::Duration;

use sharegroup_sink::config::{KeyDef, ValueKind};
use sharegroup_sink::{
    Connector, ConnectorConfig, DynSinkTask, OutcomeSender, PutError, SinkBatch, SinkTask,
    TaskContext, TaskError,
};
use tokio::time::{Instant, sleep_until};

/// The sink `blackhole`.
#[derive(Clone, Copy, Debug)]
pub struct BlackholeConnector;

impl Connector for BlackholeConnector {
    fn name(&self) -> &'static str {
        "blackhole"
    }

    fn purpose(&self) -> &'static str {
        "swallows records, for measuring"
    }

    fn keys(&self) -> &'static [KeyDef] {
        KEYS
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn task(
        &self,
        config: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        let millis = |key| config.own(key).and_then(|ms| ms.trim().parse().ok());
        let time = |key| Duration::from_millis(millis(key).unwrap_or(0));
        Ok(Box::new(BlackholeTask {
            put: time(PUT_MS.name),
            record: time(RECORD_MS.name),
            records: 0,
            bytes: 0,
        }))
    }
}

#[derive(Debug)]
struct BlackholeTask {
    /// Each put takes this long.
    put: Duration,
    /// And each record.
    record: Duration,
    records: u64,
    /// Of keys and values.
    bytes: u64,
}

impl SinkTask for BlackholeTask {
    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        // Times are added up, so that what a timer is late by isn't.
        let mut due = Instant::now() + self.put;
        if !self.put.is_zero() {
            sleep_until(due).await;
        }
        for record in batch.records() {
            if !self.record.is_zero() {
                due += self.record;
                sleep_until(due).await;
                outcomes.written(record.offset);
            }
            self.records += 1;
            let bytes = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len) as u64;
            self.bytes += bytes(record.key) + bytes(record.value);
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), TaskError> {
        tracing::info!(
            records = self.records,
            bytes = self.bytes,
            "The task has swallowed its last record."
        );
        Ok(())
    }
}

const MS: ValueKind = ValueKind::Int {
    min: 0,
    max: 3_600_000,
};
const PUT_MS: KeyDef = KeyDef::optional("put.ms", MS, "0", "milliseconds that each put takes");
const RECORD_MS: KeyDef = KeyDef::optional(
    "record.ms",
    MS,
    "0",
    "milliseconds that each record takes beyond that, one after another",
);
const KEYS: &[KeyDef] = &[PUT_MS, RECORD_MS];

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sharegroup_sink::{Outcome, Outcomes, OwnedRecord};
    use sharegroup_wire::TopicId;

    use super::*;

    fn task(put_ms: u64, record_ms: u64) -> BlackholeTask {
        BlackholeTask {
            put: Duration::from_millis(put_ms),
            record: Duration::from_millis(record_ms),
            records: 0,
            bytes: 0,
        }
    }

    async fn swallow(task: &mut BlackholeTask) -> (Duration, Option<Vec<Option<Outcome>>>) {
        let records = (0..10).map(|offset| OwnedRecord {
            offset,
            key: Some(Bytes::from("k")),
            value: Some(Bytes::from("four")),
            ..OwnedRecord::default()
        });
        let batch = SinkBatch::from_records("t", TopicId::ZERO, 0, records.collect());
        let outcomes = Outcomes::of(&batch);
        let sender = outcomes.sender();
        let began = Instant::now();
        SinkTask::put(task, batch, &sender).await.unwrap();
        (began.elapsed(), outcomes.take())
    }

    #[tokio::test(start_paused = true)]
    async fn records_and_bytes_are_counted_and_take_no_time() {
        let mut task = task(0, 0);
        assert_eq!(swallow(&mut task).await, (Duration::ZERO, None));
        swallow(&mut task).await;
        assert_eq!((task.records, task.bytes), (20, 100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_put_takes_what_it_is_told_and_each_record_counts_when_it_is_done() {
        let (took, outcomes) = swallow(&mut task(50, 5)).await;
        assert_eq!(took, Duration::from_millis(100));
        assert_eq!(outcomes, Some(vec![Some(Outcome::Written); 10]));
    }
}
