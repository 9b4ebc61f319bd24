//! One produce request: batches in, what became of each out.

use std::time::Duration;

use sharegroup_wire::message::Message;
use sharegroup_wire::message::produce::{
    ACKS_ALL, PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceData,
};
use sharegroup_wire::net::Connection;
use sharegroup_wire::{BrokerId, ErrorCode};
use tokio::time::{Instant, timeout_at};

use super::accumulator::Outgoing;
use super::batch::Batch;
use super::delivery::Refusal;
use super::error::ProduceError;
use crate::cluster::Cluster;
use crate::error::ClientError;

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
    connection: Option<Connection>,
    outgoing: Vec<Outgoing>,
    delivery_timeout: Duration,
) -> Answer {
    let mut answer = Answer {
        broker,
        connection,
        throttle: Duration::ZERO,
        attempts: Vec::new(),
    };
    let mut batches = Vec::with_capacity(outgoing.len());
    let mut topics: Vec<TopicProduceData> = Vec::new();
    for Outgoing {
        topic_id,
        mut batch,
    } in outgoing
    {
        match batch.bytes() {
            Ok(bytes) => {
                let partition = batch.partition();
                let data = PartitionProduceData {
                    index: partition.partition,
                    records: Some(bytes),
                };
                match topics
                    .iter_mut()
                    .find(|topic| topic.name == partition.topic)
                {
                    Some(topic) => topic.partition_data.push(data),
                    None => {
                        let name = partition.topic.clone();
                        topics.push(TopicProduceData {
                            name,
                            topic_id,
                            partition_data: vec![data],
                        });
                    }
                }
                batches.push((topic_id, batch));
            }
            Err(error) => {
                let error = ProduceError::build(batch.partition().clone(), &error);
                answer.attempts.push((batch, Attempt::NotBuilt(error)));
            }
        }
    }
    let Some(newest) = batches.iter().map(|(_, batch)| batch.created).max() else {
        return answer;
    };
    let deadline = newest + delivery_timeout;
    let request_timeout = cluster.config().request_timeout;
    let request = ProduceRequest {
        transactional_id: None,
        acks: ACKS_ALL,
        // Less than our own, so that the leader's answer comes before we give up.
        timeout_ms: i32::try_from(request_timeout.mul_f64(0.9).as_millis()).unwrap_or(i32::MAX),
        topic_data: topics,
    };
    let sent = match timeout_at(
        deadline,
        send(
            &cluster,
            broker,
            answer.connection.take(),
            &request,
            deadline,
        ),
    )
    .await
    {
        Ok(sent) => sent,
        Err(_) => Err(ClientError::Deadline {
            operation: ProduceRequest::NAME,
            after: delivery_timeout,
            last: None,
        }),
    };
    match sent {
        Ok((connection, mut response)) => {
            answer.connection = Some(connection);
            answer.throttle =
                Duration::from_millis(u64::try_from(response.throttle_time_ms).unwrap_or(0));
            for (topic_id, batch) in batches {
                let attempt = take_answer(&mut response, topic_id, &batch)
                    .map_or_else(no_answer, Attempt::of_answer);
                answer.attempts.push((batch, attempt));
            }
        }
        Err(error) => {
            let failed = batches
                .into_iter()
                .map(|(_, batch)| (batch, Attempt::Retry(error.clone())));
            answer.attempts.extend(failed);
        }
    }
    answer
}

async fn send(
    cluster: &Cluster,
    broker: BrokerId,
    connection: Option<Connection>,
    request: &ProduceRequest,
    deadline: Instant,
) -> Result<(Connection, ProduceResponse), ClientError> {
    let connection = match connection.filter(|connection| !connection.is_closed()) {
        Some(connection) => connection,
        None => cluster.until(deadline).open_connection(broker).await?,
    };
    let response = connection.call(request).await?;
    Ok((connection, response))
}

/// The part of the answer that is about a batch: by topic id from version 13 on, else by name.
fn take_answer(
    response: &mut ProduceResponse,
    topic_id: sharegroup_wire::TopicId,
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
