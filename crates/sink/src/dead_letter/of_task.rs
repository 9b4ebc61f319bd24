//! The dead letters of one task.

use std::time::Duration;

use sharegroup_consumer::ClientConfig;
use sharegroup_consumer::admin::Admin;
use sharegroup_wire::net::Address;

use super::letter::{DeadLetter, Origin};
use super::queue::{DeadLetterConfig, DeadLetterQueue};
use crate::config::{ConnectorConfig, DeadLetterWriter, ErrorTolerance};
use crate::convert::StageError;
use crate::error::chain;
use crate::task::{Answers, DeadLetters, Letter, LetterError, LetterOf};

/// Writes what a task gives up to the connector's dead-letter topic.
#[derive(Debug)]
pub(crate) struct LettersOfTask {
    queue: DeadLetterQueue,
    /// Where context headers are wanted.
    origin: Option<Origin>,
}

/// Longest wait for a round of letters. Their records are held meanwhile, and tried again after it.
const WITHIN: Duration = Duration::from_secs(10);

impl LettersOfTask {
    /// Opens the queue, whose cluster may take so long to answer. `None`: the connector sets nothing aside, or nowhere,
    /// or leaves it to the broker.
    ///
    /// # Errors
    /// The topic can't be had: the first record that is refused would stop the task.
    pub(crate) async fn open(
        connector: &ConnectorConfig,
        task: u32,
        startup_timeout: Duration,
    ) -> Result<Option<Self>, String> {
        let errors = &connector.errors;
        let wanted = errors.dead_letters.as_ref();
        let is_ours = errors.tolerance == ErrorTolerance::All
            && connector.delivery.dead_letter_writer == DeadLetterWriter::Worker;
        let Some(letters) = wanted.filter(|_| is_ours) else {
            return Ok(None);
        };
        let config = DeadLetterConfig {
            topic: letters.topic.clone(),
            partitions: letters.partitions,
            replication_factor: connector
                .get("errors.deadletterqueue.topic.replication.factor")
                .map(|_| letters.replication_factor),
            producer: connector.producer.clone(),
        };
        let mut client = admin_client(connector).clone();
        client.default_api_timeout = startup_timeout;
        let queue = DeadLetterQueue::open(config, &Admin::new(client), &connector.topics).await;
        let origin = Origin {
            connector: connector.name.clone(),
            task: task as usize,
            group_id: connector.consumer.group_id.clone(),
        };
        Ok(Some(Self {
            queue: queue.map_err(|error| chain(&error))?,
            origin: letters.context_headers.then_some(origin),
        }))
    }

    fn dead_letter(&self, letter: &Letter) -> Option<DeadLetter> {
        let origin = self.origin.as_ref();
        match &letter.of {
            LetterOf::Record(batch) => {
                let put = StageError::reported(letter.error.as_str());
                let failure = letter.stage.as_deref().unwrap_or(&put);
                let record = batch.records().next()?;
                Some(DeadLetter::of(&record, failure, origin))
            }
            LetterOf::Corrupt(range) => {
                let failure = StageError::corrupt(&letter.error);
                Some(DeadLetter::of_corrupt(range, &failure, origin))
            }
        }
    }
}

/// Who finds or creates the topic: the admin client, where it speaks to the cluster that letters are written to; else
/// whoever writes them, since the topic has to be there.
fn admin_client(connector: &ConnectorConfig) -> &ClientConfig {
    let (admin, writer) = (&connector.consumer.admin, &connector.producer.client);
    let is_of = |servers: &[Address], others: &[Address]| {
        let mut servers = servers.iter();
        servers.all(|server| others.contains(server))
    };
    let (at, to) = (&admin.bootstrap_servers, &writer.bootstrap_servers);
    if is_of(at, to) && is_of(to, at) {
        admin
    } else {
        writer
    }
}

impl DeadLetters for LettersOfTask {
    fn write<'a>(&'a mut self, letters: &'a [Letter]) -> Answers<'a> {
        Box::pin(async move {
            let dead = letters.iter().map(|letter| self.dead_letter(letter));
            // INVARIANT: a letter is of one record. Were one of none, the answers would not be in order.
            let Some(dead) = dead.collect::<Option<Vec<_>>>() else {
                return Vec::new();
            };
            let results = self.queue.write(&dead, WITHIN).await;
            let answer = |result: Result<(), super::DeadLetterError>| {
                result.map_err(|error| LetterError {
                    is_retriable: error.is_retriable(),
                    text: chain(&error),
                })
            };
            results.into_iter().map(answer).collect()
        })
    }
}
