//! CreateTopics (19).

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest,
    CreateTopicsResponse,
};
use sharegroup_wire::message::describe_configs::{SOURCE_DEFAULT, SOURCE_TOPIC};

use super::{Reply, Serve};
use crate::model::config::{Change, Values, keys};
use crate::model::limits::{PARTITIONS_MAX, TOPIC_PARTITIONS_MAX};
use crate::model::topics::check_name;
use crate::model::{Call, Model};

/// Why a topic is refused.
type Refusal = (ErrorCode, String);

/// A topic that may be made.
struct Plan {
    partitions: i32,
    replicas: i16,
    values: Values,
}

impl Serve for CreateTopicsRequest {
    const VERSIONS: RangeInclusive<i16> = 2..=7;

    fn serve(self, model: &mut Model, _: &Call) -> Reply<CreateTopicsResponse> {
        let mut topics = Vec::new();
        for topic in &self.topics {
            let is_repeated = self
                .topics
                .iter()
                .filter(|other| other.name == topic.name)
                .count()
                > 1;
            let planned = if is_repeated {
                Err((
                    ErrorCode::InvalidRequest,
                    "Duplicate topic name.".to_owned(),
                ))
            } else {
                plan(model, topic)
            };
            topics.push(match planned {
                Ok(plan) => created(model, topic, plan, self.validate_only),
                Err((error, text)) => failed(topic, error, Some(text)),
            });
        }
        Reply::Now(CreateTopicsResponse {
            topics,
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> CreateTopicsResponse {
        CreateTopicsResponse {
            topics: self
                .topics
                .iter()
                .map(|topic| failed(topic, error, None))
                .collect(),
            ..Default::default()
        }
    }
}

fn failed(
    topic: &CreatableTopic,
    error_code: ErrorCode,
    error_message: Option<String>,
) -> CreatableTopicResult {
    CreatableTopicResult {
        name: topic.name.clone(),
        error_code,
        error_message,
        configs: Some(Vec::new()),
        ..Default::default()
    }
}

fn plan(model: &Model, topic: &CreatableTopic) -> Result<Plan, Refusal> {
    check_name(&topic.name).map_err(|text| (ErrorCode::InvalidTopicException, text))?;
    if model.topics.named(&topic.name).is_some() {
        let text = format!("Topic '{}' already exists.", topic.name);
        return Err((ErrorCode::TopicAlreadyExists, text));
    }
    let brokers = model.nodes.len();
    let (mut partitions, mut replicas) = (topic.num_partitions, topic.replication_factor);
    if let Some(first) = topic.assignments.first() {
        partitions = i32::try_from(topic.assignments.len()).unwrap_or(i32::MAX);
        replicas = i16::try_from(first.broker_ids.len()).unwrap_or(0);
    }
    if partitions == -1 {
        partitions = i32::try_from(model.configs.broker_number("num.partitions")).unwrap_or(1);
    }
    if replicas == -1 {
        replicas =
            i16::try_from(model.configs.broker_number("default.replication.factor")).unwrap_or(1);
    }
    let count = usize::try_from(partitions).unwrap_or(0);
    if !(1..=TOPIC_PARTITIONS_MAX).contains(&count)
        || model.topics.partition_count() + count > PARTITIONS_MAX
    {
        let text = if count == 0 {
            "Number of partitions was set to an invalid non-positive value.".to_owned()
        } else {
            format!(
                "At most {TOPIC_PARTITIONS_MAX} partitions a topic, {PARTITIONS_MAX} in all here."
            )
        };
        return Err((ErrorCode::InvalidPartitions, text));
    }
    if replicas < 1 || usize::try_from(replicas).is_ok_and(|replicas| replicas > brokers) {
        let text = format!(
            "Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} \
             cannot be reached because only {brokers} broker(s) are registered or some brokers have all their log \
             directories cordoned."
        );
        return Err((ErrorCode::InvalidReplicationFactor, text));
    }
    let changes: Vec<_> = topic
        .configs
        .iter()
        .map(|config| {
            (
                config.name.as_str(),
                config.value.as_deref().map_or(Change::Delete, Change::Set),
            )
        })
        .collect();
    let values = model.configs.changed(keys::TOPIC, &Values::new(), &changes);
    let values = values.map_err(|text| (ErrorCode::InvalidConfig, text))?;
    Ok(Plan {
        partitions,
        replicas,
        values,
    })
}

fn created(
    model: &mut Model,
    topic: &CreatableTopic,
    plan: Plan,
    validate_only: bool,
) -> CreatableTopicResult {
    let mut result = CreatableTopicResult {
        name: topic.name.clone(),
        num_partitions: plan.partitions,
        replication_factor: plan.replicas,
        configs: Some(told(model, &plan.values)),
        ..Default::default()
    };
    if validate_only {
        return result;
    }
    let replicas = usize::try_from(plan.replicas).unwrap_or(1);
    result.topic_id = model.create_topic(&topic.name, plan.partitions, replicas);
    if let Some(made) = model.topics.get_mut(result.topic_id) {
        made.values = plan.values;
        for (partition, assignment) in made.partitions.iter_mut().zip(&topic.assignments) {
            partition.replicas.clone_from(&assignment.broker_ids);
            partition.leader = partition
                .replicas
                .first()
                .copied()
                .unwrap_or(partition.leader);
        }
    }
    model.note_topic(result.topic_id);
    result
}

fn told(model: &Model, values: &Values) -> Vec<CreatableTopicConfigs> {
    let told = keys::TOPIC.iter().map(|key| CreatableTopicConfigs {
        name: key.name.to_owned(),
        value: Some(model.configs.topic_text(values, key.name).to_owned()),
        config_source: if values.contains_key(key.name) {
            SOURCE_TOPIC
        } else {
            SOURCE_DEFAULT
        },
        ..Default::default()
    });
    told.collect()
}
