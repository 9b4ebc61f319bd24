//! What is produced, and what is known of it afterwards.

use bytes::Bytes;

use crate::topic_partition::TopicPartition;

/// A record to be written.
///
/// ```
/// use sharegroup_consumer::producer::ProducerRecord;
///
/// let record = ProducerRecord::new("orders").key("42").value("{}").header("trace", "abc");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ProducerRecord {
    /// The topic's name.
    pub topic: String,
    /// Partition index; `None` = by the key, or any where there is none.
    pub partition: Option<i32>,
    /// The key; `None` = null.
    pub key: Option<Bytes>,
    /// The value; `None` = null.
    pub value: Option<Bytes>,
    /// Headers in order; a key may repeat and need not be UTF-8.
    pub headers: Vec<ProducerHeader>,
    /// Milliseconds since 1970; `None` = now.
    pub timestamp_ms: Option<i64>,
}

/// A header of a record to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerHeader {
    /// The key, by rights UTF-8.
    pub key: Bytes,
    /// The value; `None` = null.
    pub value: Option<Bytes>,
}

impl ProducerRecord {
    /// A record of a topic, with null key and null value.
    pub fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            ..Self::default()
        }
    }

    /// Sets the partition.
    #[must_use]
    pub const fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the value.
    #[must_use]
    pub fn value(mut self, value: impl Into<Bytes>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// Appends a header.
    #[must_use]
    pub fn header(mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.headers.push(ProducerHeader {
            key: key.into(),
            value: Some(value.into()),
        });
        self
    }

    /// Sets the timestamp, in milliseconds since 1970.
    #[must_use]
    pub const fn timestamp_ms(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    /// An upper bound of its bytes in a batch, without compression.
    pub(super) fn size_bytes(&self) -> usize {
        const RECORD_OVERHEAD_BYTES: usize = 36;
        const HEADER_OVERHEAD_BYTES: usize = 10;
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers = self.headers.iter();
        let headers =
            headers.map(|header| header.key.len() + length(&header.value) + HEADER_OVERHEAD_BYTES);
        RECORD_OVERHEAD_BYTES + length(&self.key) + length(&self.value) + headers.sum::<usize>()
    }
}

/// Where a record was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordMetadata {
    /// The partition.
    pub partition: TopicPartition,
    /// The offset; `None` where the broker had the record already and no longer knows its offset.
    pub offset: Option<i64>,
    /// Append time in milliseconds since 1970 where the topic uses it (LogAppendTime).
    pub append_time_ms: Option<i64>,
}
