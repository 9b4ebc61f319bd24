//! The broker's own dead-letter queue (KIP-1191): what a group has lost for good is written to a topic,
//! one record each.
//!
//! *Quirk*: nobody is told when that fails, because the topic is missing, its name lacks the brokers'
//! prefix or its configuration doesn't allow it: the record is archived all the same.

use std::time::Instant;

use bytes::Bytes;
use sharegroup_wire::compress::{Compression, DecompressLimits};
use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder};

use super::Model;
use super::config::{GroupRules, Values};
use super::share_partition::{Lost, LostCause};
use super::topics::Place;

impl LostCause {
    const fn text(self) -> &'static str {
        match self {
            Self::Rejected => "Offset rejected by client.",
            Self::DeliveryCountExceeded => "Offset delivery count exceeded the threshold.",
        }
    }
}

impl Model {
    /// Writes dead letters of what a group has lost, where it wants that.
    pub(super) fn bury(
        &mut self,
        now: Instant,
        group_id: &str,
        place: Place,
        lost: &[Lost],
        rules: &GroupRules,
    ) {
        if lost.is_empty() || rules.dead_letter_topic.is_empty() {
            return;
        }
        let Some(target) = self.dead_letter_place(&rules.dead_letter_topic, place.1) else {
            return;
        };
        let unix_ms = self.unix_ms(now);
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for lost in lost {
            for offset in lost.first_offset..=lost.last_offset {
                let (key, value) = match rules.dead_letter_copies {
                    true => self.key_and_value(place, offset),
                    false => (None, None),
                };
                let headers = self.dead_letter_headers(group_id, place, offset, lost);
                let headers = headers
                    .iter()
                    .map(|(name, text)| (name.as_bytes(), Some(text.as_bytes())));
                if builder
                    .push(unix_ms, key.as_deref(), value.as_deref(), headers)
                    .is_err()
                {
                    return;
                }
            }
        }
        let batch = builder
            .build(0)
            .ok()
            .and_then(|bytes| RecordBatch::read(bytes).ok());
        if let (Some(batch), Some(partition)) = (batch, self.topics.partition_mut(target)) {
            let before = partition.log.bounds();
            partition.log.append(&batch, partition.leader_epoch, None);
            self.note_log(target, before);
            self.touch(target);
        }
    }

    /// The partition of the dead-letter topic that takes what a source partition has lost.
    fn dead_letter_place(&mut self, name: &str, source: i32) -> Option<Place> {
        let prefix = self
            .configs
            .broker_text("errors.deadletterqueue.topic.name.prefix");
        if !name.starts_with(prefix) {
            return None;
        }
        if self.topics.named(name).is_none()
            && self
                .configs
                .broker_flag("errors.deadletterqueue.auto.create.topics.enable")
        {
            let partitions =
                i32::try_from(self.configs.broker_number("num.partitions")).unwrap_or(1);
            let id = self.create_topic(name, partitions, 1);
            let enabled = ("errors.deadletterqueue.group.enable", "true");
            let enabled = (enabled.0.to_owned(), enabled.1.to_owned());
            self.set_topic_values(id, Values::from([enabled]));
        }
        let topic = self.topics.named(name)?;
        let enabled = "errors.deadletterqueue.group.enable";
        let is_enabled = self.configs.topic_text(&topic.values, enabled) == "true";
        let count = i32::try_from(topic.partitions.len())
            .ok()
            .filter(|_| is_enabled)?;
        Some((topic.id, source.checked_rem(count)?))
    }

    fn dead_letter_headers(
        &self,
        group_id: &str,
        place: Place,
        offset: i64,
        lost: &Lost,
    ) -> [(&'static str, String); 6] {
        let topic = self.topics.get(place.0);
        [
            (
                "__dlq.errors.topic",
                topic.map_or_else(String::new, |topic| topic.name.clone()),
            ),
            ("__dlq.errors.partition", place.1.to_string()),
            ("__dlq.errors.offset", offset.to_string()),
            ("__dlq.errors.group", group_id.to_owned()),
            (
                "__dlq.errors.delivery.count",
                lost.delivery_count.to_string(),
            ),
            ("__dlq.errors.message", lost.cause.text().to_owned()),
        ]
    }

    /// Key and value of a record, as far as they can be read.
    fn key_and_value(&self, place: Place, offset: i64) -> (Option<Bytes>, Option<Bytes>) {
        let read = || {
            let partition = self.topics.partition(place)?;
            let stored = partition.log.read(offset, i64::MAX, 0, true).next()?;
            let batch = RecordBatch::read(stored.bytes.clone()).ok()?;
            let records = batch.records(&DecompressLimits::default()).ok()?;
            let record = records.flatten().find(|record| record.offset == offset)?;
            let copy = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
            Some((record.key.map(copy), record.value.map(copy)))
        };
        read().unwrap_or((None, None))
    }
}
