//! The settings of the producer of dead letters: worker `producer.*`, then connector
//! `producer.override.*`, later wins. As in Kafka Connect it writes to the worker's cluster, also where
//! the consumers read another one.

use sharegroup_consumer::producer::ProducerConfig;

use super::consumer::client;
use super::layers::Layers;
use super::problem::ConfigProblem;
use super::security::{configure, is_of_kind};

/// Resolves the settings; what is wrong goes into `problems`. `None` without usable servers.
pub(super) fn resolve(
    connector: &str,
    layers: &Layers<'_>,
    problems: &mut Vec<ConfigProblem>,
) -> Option<ProducerConfig> {
    let mut client = client(
        &format!("connector-dlq-producer-{connector}"),
        layers,
        problems,
    )?;
    configure(&mut client, |key| layers.find(key), problems);
    let mut config = ProducerConfig::new(client);
    for key in ProducerConfig::keys() {
        if let Some(setting) = layers.find(key)
            && is_of_kind(layers.client.tables, key, setting.value)
            && let Err(error) = config.set(key, setting.value)
        {
            problems.push(setting.problem(key, &error));
        }
    }
    Some(config)
}
