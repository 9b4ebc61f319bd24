//! CreatePartitions (37).

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreatePartitionsTopicResult,
};

use super::{Reply, Serve};
use crate::model::limits::{PARTITIONS_MAX, TOPIC_PARTITIONS_MAX};
use crate::model::{Call, Model, text_of};

impl Serve for CreatePartitionsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=3;

    fn serve(self, model: &mut Model, _: &Call) -> Reply<CreatePartitionsResponse> {
        let mut results = Vec::new();
        for topic in &self.topics {
            results.push(match check(model, topic) {
                Ok((id, count)) => {
                    if !self.validate_only {
                        model.add_partitions(id, count);
                    }
                    result(topic, ErrorCode::None, None)
                }
                Err((error, text)) => result(topic, error, Some(text)),
            });
        }
        Reply::Now(CreatePartitionsResponse {
            results,
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> CreatePartitionsResponse {
        CreatePartitionsResponse {
            results: self
                .topics
                .iter()
                .map(|topic| result(topic, error, None))
                .collect(),
            ..Default::default()
        }
    }
}

fn check(
    model: &Model,
    asked: &CreatePartitionsTopic,
) -> Result<(sharegroup_wire::TopicId, usize), (ErrorCode, String)> {
    let unknown = || {
        let error = ErrorCode::UnknownTopicOrPartition;
        (error, text_of(error).unwrap_or_default())
    };
    let topic = model.topics.named(&asked.name).ok_or_else(unknown)?;
    let (count, current) = (
        usize::try_from(asked.count).unwrap_or(0),
        topic.partitions.len(),
    );
    if count <= current {
        let text = if count == current {
            format!("Topic already has {current} partition(s).")
        } else {
            format!(
                "The topic {} currently has {current} partition(s); {} would not be an increase.",
                asked.name, asked.count
            )
        };
        return Err((ErrorCode::InvalidPartitions, text));
    }
    let total = model.topics.partition_count() + count - current;
    if count > TOPIC_PARTITIONS_MAX || total > PARTITIONS_MAX {
        let text = "Number of partitions is too large here.".to_owned();
        return Err((ErrorCode::InvalidPartitions, text));
    }
    Ok((topic.id, count))
}

fn result(
    topic: &CreatePartitionsTopic,
    error_code: ErrorCode,
    error_message: Option<String>,
) -> CreatePartitionsTopicResult {
    CreatePartitionsTopicResult {
        name: topic.name.clone(),
        error_code,
        error_message,
    }
}
