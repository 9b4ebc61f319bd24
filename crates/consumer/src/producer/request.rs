//! One produce request: batches in, what became of each out.

use std::time::Duration;

use sharegroup_wire::message::Message;
use sharegroup_wire::message::produce::{
    ACKS_ALL, PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceData,
};
use sharegroup_wire::net::{CallError, Connection};
use sharegroup_wire::{BrokerId, ErrorCode, TopicId};
use tokio::time::{Instant, timeout_at};

use super::accumulator::Outgoing;
use super::batch::Batch;
use super::delivery::Refusal;
use super::error::ProduceError;
use crate::cluster::Cluster;
use crate::error::ClientError;
use crate::topic_partition::TopicPartition;

/// What became of one batch.
#[derive(Debug)]
pub(super) enum Attempt {
    /// It is in the log.
    Written {
        base_offset: i64,
        append_time_ms: i64,
    },
    /// Try again, with the same identity.
    Retry(ClientError),
    /// Try again with the next epoch: the leader doesn't take the sequence number.
    RetryWithNextEpoch(ClientError),
    /// Refused for good.
    Refused(Refusal),
    /// It could not be written as bytes.
    NotBuilt(ProduceError),
}

impl Attempt {
    fn of_answer(answer: PartitionProduceResponse) -> Self {
        let retry = |code| ClientError::Broker {
            api: ProduceRequest::NAME,
            code,
            message: answer.error_message.clone(),
        };
        match answer.error_code {
            // With DUPLICATE_SEQUENCE_NUMBER it is in the log by an earlier try.
            ErrorCode::None | ErrorCode::DuplicateSequenceNumber => Self::Written {
                base_offset: answer.base_offset,
                append_time_ms: answer.log_append_time_ms,
            },
            code @ (ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId) => {
                Self::RetryWithNextEpoch(retry(code))
            }
            code if code.is_retriable() => Self::Retry(retry(code)),
            code => Self::Refused(Refusal {
                code,
                message: answer.error_message,
                records: answer.record_errors,
                may_have_been_written: false,
            }),
        }
    }

    /// Whether the partition's leader may be another broker now.
    pub(super) fn questions_leader(&self) -> bool {
        match self {
            Self::Retry(error) => !matches!(
                error.broker_code(),
                Some(
                    ErrorCode::CorruptMessage
                        | ErrorCode::RequestTimedOut
                        | ErrorCode::NotEnoughReplicas
                        | ErrorCode::NotEnoughReplicasAfterAppend
                )
            ),
            _ => false,
        }
    }
}

/// What became of a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) broker: BrokerId,
    /// The connection, for the next request; `None` = it is gone.
    pub(super) connection: Option<Connection>,
    /// The broker takes no request for so long.
    pub(super) throttle: Duration,
    pub(super) attempts: Vec<(Batch, Attempt)>,
}

/// Sends batches to the broker that leads their partitions. Ends when the last of them has to be
/// confirmed at the latest.
pub(super) async fn produce(
    cluster: Cluster,
    broker: BrokerId,
    mut connection: Option<Connection>,
    outgoing: Vec<Outgoing>,
    delivery_timeout: Duration,
) -> Answer {
    let (topic_data, batches, mut attempts) = build(outgoing);
    let mut throttle = Duration::ZERO;
    if let Some(newest) = batches.iter().map(|(_, batch)| batch.created).max() {
        let deadline = newest + delivery_timeout;
        let request = ProduceRequest {
            transactional_id: None,
            acks: ACKS_ALL,
            timeout_ms: leader_timeout_ms(&cluster),
            topic_data,
        };
        let sent = send(&cluster, broker, connection.take(), &request, deadline);
        let too_late = |_| {
            let (operation, after) = (ProduceRequest::NAME, delivery_timeout);
            Err(ClientError::Deadline {
                operation,
                after,
                last: None,
            })
        };
        match timeout_at(deadline, sent).await.unwrap_or_else(too_late) {
            Ok((kept, mut response)) => {
                connection = Some(kept);
                throttle =
                    Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
                attempts.extend(batches.into_iter().map(|(topic_id, batch)| {
                    let answer = take_answer(&mut response, topic_id, &batch);
                    (batch, answer.map_or_else(no_answer, Attempt::of_answer))
                }));
            }
            Err(error) => {
                attempts.extend(
                    batches
                        .into_iter()
                        .map(|(_, batch)| (batch, Attempt::Retry(error.clone()))),
                );
            }
        }
    }
    Answer {
        broker,
        connection,
        throttle,
        attempts,
    }
}

/// What a leader gets, the batches that are in it with their topics, and those that could not be
/// built.
type Built = (
    Vec<TopicProduceData>,
    Vec<(TopicId, Batch)>,
    Vec<(Batch, Attempt)>,
);

/// Writes batches as bytes: compression happens here, outside of the producer's lock.
fn build(outgoing: Vec<Outgoing>) -> Built {
    let (mut topics, mut batches, mut attempts) =
        (Vec::<TopicProduceData>::new(), Vec::new(), Vec::new());
    for Outgoing {
        topic_id,
        mut batch,
    } in outgoing
    {
        let records = match batch.bytes() {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                let error = ProduceError::build(batch.partition().clone(), &error);
                attempts.push((batch, Attempt::NotBuilt(error)));
                continue;
            }
        };
        let TopicPartition { topic, partition } = batch.partition();
        let data = PartitionProduceData {
            index: *partition,
            records,
        };
        match topics.iter_mut().find(|entry| entry.name == *topic) {
            Some(entry) => entry.partition_data.push(data),
            None => topics.push(TopicProduceData {
                name: topic.clone(),
                topic_id,
                partition_data: vec![data],
            }),
        }
        batches.push((topic_id, batch));
    }
    (topics, batches, attempts)
}

/// The leader's time for its replicas: less than our own, so that its answer comes before we give
/// up.
fn leader_timeout_ms(cluster: &Cluster) -> i32 {
    let timeout = cluster.config().request_timeout.mul_f64(0.9);
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

async fn send(
    cluster: &Cluster,
    broker: BrokerId,
    connection: Option<Connection>,
    request: &ProduceRequest,
    deadline: Instant,
) -> Result<(Connection, ProduceResponse), ClientError> {
    if let Some(connection) = connection {
        match connection.call(request).await {
            // It has ended since: nothing was sent.
            Err(CallError::NotConnected { .. }) => {}
            outcome => return Ok((connection, outcome?)),
        }
    }
    let idle_max = cluster.config().connections_max_idle;
    let cluster = cluster.until(deadline);
    let connection = cluster.open_connection(broker, idle_max).await?;
    let response = connection.call(request).await?;
    Ok((connection, response))
}

/// The part of the answer that is about a batch: by topic id from version 13 on, else by name.
fn take_answer(
    response: &mut ProduceResponse,
    topic_id: TopicId,
    batch: &Batch,
) -> Option<PartitionProduceResponse> {
    let partition = batch.partition();
    let topic = response.responses.iter_mut().find(|topic| {
        if topic.topic_id.is_zero() {
            topic.name == partition.topic
        } else {
            topic.topic_id == topic_id
        }
    })?;
    let index = topic
        .partition_responses
        .iter()
        .position(|answer| answer.index == partition.partition)?;
    Some(topic.partition_responses.swap_remove(index))
}

/// A leader that leaves a batch out of its answer: its fate is unknown.
const fn no_answer() -> Attempt {
    Attempt::Retry(ClientError::Broker {
        api: ProduceRequest::NAME,
        code: ErrorCode::UnknownServerError,
        message: None,
    })
}
