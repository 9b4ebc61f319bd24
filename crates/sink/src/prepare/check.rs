//! The same questions as before a join, by themselves: nothing is set.

use std::time::Duration;

use sharegroup_consumer::admin::{Admin, AdminError};
use sharegroup_wire::ErrorCode;

use super::net::check_topic;
use super::{PrepareError, check_cluster, check_type, read_settings};
use crate::check::Checked;
use crate::config::{
    ConfigProblem, ConnectorConfig, DeadLetterWriter, ErrorTolerance, Topics, WorkerConfig,
};

/// Whether the cluster has what a connector reads, and lets it. Also the topics that it reads, where the cluster can be
/// asked.
pub(crate) async fn check_kafka(
    worker: &WorkerConfig,
    connector: &ConnectorConfig,
    within: Duration,
) -> (Checked, Option<Vec<String>>) {
    let settings = &connector.consumer;
    let client = |config: &sharegroup_consumer::ClientConfig| {
        let mut config = config.clone();
        config.default_api_timeout = within;
        Admin::new(config)
    };
    let (admin, reader) = (client(&settings.admin), client(&settings.client));
    let at_servers = |error: &dyn ToString| {
        Checked::failed(connector.problem_of_servers(worker, error.to_string()))
    };
    if let Err(error) = check_cluster(&admin, settings).await {
        return (at_servers(&error), None);
    }
    let topics = match connector.subscription.resolve(&reader).await {
        Ok(topics) => topics,
        Err(error) => return (at_servers(&error), None),
    };
    let mut checked = Checked::default();
    let servers = &settings.bootstrap_servers;
    checked.note(format!("Kafka at {servers} answers and has share groups"));
    check_topics(&mut checked, connector, &reader, &topics).await;
    check_group(&mut checked, connector, &admin, &reader).await;
    check_letters(&mut checked, connector, &admin).await;
    (checked, Some(topics))
}

/// Topics that are missing are waited for by whoever reads them.
async fn check_topics(
    checked: &mut Checked,
    connector: &ConnectorConfig,
    reader: &Admin,
    topics: &[String],
) {
    if let (Topics::Matching(_), true) = (&connector.subscription, topics.is_empty()) {
        let problem = connector.problem("topics.regex", "matches no topic yet");
        let advice =
            "tasks wait for the first one; a topic that this client may not describe doesn't count";
        checked.problem(problem.advice(advice).warning());
    }
    for topic in topics {
        let key = match &connector.subscription {
            Topics::Named(_) => "topics",
            Topics::Matching(_) => "topics.regex",
        };
        let problem = |message: String| connector.problem(key, message);
        match reader.topic_rights(topic).await {
            Ok(Some(rights)) if !rights.read() => {
                let problem = problem(format!("this client may not read the topic {topic}"));
                checked.problem(problem.advice("grant READ on it with kafka-acls.sh"));
            }
            Ok(_) => match reader.find_topic(topic).await {
                Ok(found) => {
                    let partitions = found.map_or(0, |found| found.partitions.len());
                    checked.note(format!("topic {topic} has {partitions} partitions"));
                }
                Err(error) => checked.problem(problem(error.to_string())),
            },
            Err(error) if is_unknown(&error) => {
                let problem = problem(format!("there is no topic {topic} yet"));
                let advice =
                    format!("tasks wait for it; sharegroup topics create --topic {topic} makes it");
                checked.problem(problem.advice(advice).warning());
            }
            Err(error) => checked.problem(problem(error.to_string())),
        }
    }
}

async fn check_group(
    checked: &mut Checked,
    connector: &ConnectorConfig,
    admin: &Admin,
    reader: &Admin,
) {
    let group_id = &connector.consumer.group_id;
    if let Err(error) = check_type(admin, &connector.consumer).await {
        checked.problem(of_group(connector, &error));
        return;
    }
    if let Err(error) = read_settings(admin, connector).await {
        checked.problem(of_group(connector, &error));
    }
    match reader.share_group_rights(group_id).await {
        Ok(Some(rights)) if !rights.read() => {
            let message = format!("this client may not join the group {group_id}");
            let problem = connector.problem("share.group.id", message);
            checked.problem(problem.advice("grant READ on it with kafka-acls.sh"));
        }
        Ok(Some(_)) => checked.note(format!("share group {group_id} is there and may be joined")),
        Ok(None) => checked.note(format!(
            "whether the share group {group_id} may be joined shows at the start"
        )),
        Err(error) => checked.problem(of_group(connector, &error)),
    }
}

fn of_group(connector: &ConnectorConfig, error: &dyn ToString) -> ConfigProblem {
    connector.problem("share.group.id", error.to_string())
}

/// Where records go that are given up.
async fn check_letters(checked: &mut Checked, connector: &ConnectorConfig, admin: &Admin) {
    let errors = &connector.errors;
    let is_ours = errors.tolerance == ErrorTolerance::All
        && connector.delivery.dead_letter_writer == DeadLetterWriter::Worker;
    if let Some(letters) = errors.dead_letters.as_ref().filter(|_| is_ours) {
        let topic = &letters.topic;
        let problem = |error: String| connector.problem("errors.deadletterqueue.topic.name", error);
        // As whoever writes there.
        let mut client = connector.producer.client.clone();
        client.default_api_timeout = connector.consumer.admin.default_api_timeout;
        match Admin::new(client).topic_rights(topic).await {
            Ok(Some(rights)) if !rights.write() => {
                let problem = problem("this client may not write to the topic".to_owned());
                checked.problem(problem.advice("grant WRITE on it with kafka-acls.sh"));
            }
            Ok(_) => checked.note(format!("dead-letter topic {topic} is there")),
            Err(error) if is_unknown(&error) => checked.note(format!(
                "dead-letter topic {topic} isn't there yet; it is created at the first start"
            )),
            Err(error) => checked.problem(problem(error.to_string())),
        }
    }
    if let Some(topic) = &connector.delivery.dead_letter_net_topic {
        let servers = &connector.consumer.bootstrap_servers;
        if let Err(error) = check_topic(admin, servers, topic).await {
            let error = PrepareError::Net(error);
            checked.problem(connector.problem("share.dead.letter.net.topic", error.to_string()));
        }
    }
}

fn is_unknown(error: &AdminError) -> bool {
    error.code() == Some(ErrorCode::UnknownTopicOrPartition)
}
