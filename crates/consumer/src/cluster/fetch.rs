//! Reading a partition's log without any group.

use bytes::Bytes;
use sharegroup_session::TopicPartition;
use sharegroup_wire::message::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use sharegroup_wire::{BrokerId, ErrorCode};

use super::{Attempts, Cluster};
use crate::error::ClientError;

/// What to read of a log, and where.
#[derive(Debug, Clone)]
pub(crate) struct LogRead {
    pub(crate) broker: BrokerId,
    pub(crate) topic: String,
    pub(crate) partition: TopicPartition,
    /// The batch that holds this offset comes first, whole, however large it is.
    pub(crate) offset: i64,
    /// Further batches come while they fit in so many bytes; the last may be cut.
    pub(crate) bytes_max: usize,
}

impl Cluster {
    /// Reads a log at one broker, again and again until the deadline where it fails. Transactions are not
    /// looked at: READ_UNCOMMITTED.
    pub(crate) async fn read_log(&self, read: &LogRead) -> Result<Bytes, ClientError> {
        let request = request(read);
        let mut attempts = Attempts::new(self, "reading offsets again");
        let cluster = self.until(attempts.deadline());
        loop {
            let answer = cluster.call_broker(read.broker, &request).await;
            match answer.and_then(|response| records(response, read.partition.partition)) {
                Err(error)
                    if error.is_retriable() && !matches!(error, ClientError::Deadline { .. }) =>
                {
                    attempts.failed(error);
                }
                done => return done,
            }
            attempts.pause().await?;
        }
    }
}

fn request(read: &LogRead) -> FetchRequest {
    let bytes_max = i32::try_from(read.bytes_max).unwrap_or(i32::MAX);
    let partition = FetchPartition {
        partition: read.partition.partition,
        fetch_offset: read.offset,
        partition_max_bytes: bytes_max,
        ..Default::default()
    };
    FetchRequest {
        max_bytes: bytes_max,
        topics: vec![FetchTopic {
            topic: read.topic.clone(),
            topic_id: read.partition.topic_id,
            partitions: vec![partition],
        }],
        ..Default::default()
    }
}

fn records(response: FetchResponse, partition: i32) -> Result<Bytes, ClientError> {
    let refused = |code| ClientError::Broker {
        api: "Fetch",
        code,
        message: None,
    };
    if !response.error_code.is_none() {
        return Err(refused(response.error_code));
    }
    let mut partitions = response.responses.into_iter().flat_map(|t| t.partitions);
    match partitions.find(|data| data.partition_index == partition) {
        Some(data) if data.error_code.is_none() => Ok(data.records.unwrap_or_default()),
        Some(data) => Err(refused(data.error_code)),
        None => Err(refused(ErrorCode::UnknownTopicOrPartition)),
    }
}
