//! The topic of dead letters, and a producer that writes to it.

use std::time::Duration;

use sharegroup_consumer::admin::{Admin, AdminError};
use sharegroup_consumer::producer::{DeliveryFuture, ProduceError, Producer, ProducerConfig};
use sharegroup_wire::ErrorCode;
use tokio::time::{Instant, timeout_at};

use super::letter::DeadLetter;

/// Where dead letters go.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetterConfig {
    /// `errors.deadletterqueue.topic.name`.
    pub(crate) topic: String,
    /// Partitions of the topic, if it has to be created; Connect has always 1.
    pub(crate) partitions: i32,
    /// `errors.deadletterqueue.topic.replication.factor`, where it is set. `None` = Connect's default of
    /// 3, or the broker's own where there are too few brokers for that.
    pub(crate) replication_factor: Option<i16>,
    /// The producer, with acks=all as ever.
    pub(crate) producer: ProducerConfig,
}

impl DeadLetterConfig {
    fn servers(&self) -> String {
        let servers = self.producer.client.bootstrap_servers.iter();
        let servers: Vec<_> = servers.map(ToString::to_string).collect();
        servers.join(",")
    }
}

/// Why dead letters can't be written at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The topic is read by the connector: dead letters would come back for ever.
    #[error(
        "dead-letter topic `{topic}` is among the topics of the connector; set another \
         errors.deadletterqueue.topic.name"
    )]
    IsSource { topic: String },
    /// It couldn't be found or created.
    #[error(
        "errors.deadletterqueue.topic.name={topic}: there is no such topic at {bootstrap_servers}, and it can't be created \
         with {partitions} partitions and errors.deadletterqueue.topic.replication.factor={replication_factor}: {source}; \
         create it there, or allow CREATE on it"
    )]
    NotCreated {
        topic: String,
        bootstrap_servers: String,
        partitions: i32,
        replication_factor: i16,
        source: AdminError,
    },
    /// The cluster couldn't be asked for it.
    #[error(
        "errors.deadletterqueue.topic.name={topic} can't be looked up at {bootstrap_servers}, where dead letters are written: \
         {source}; that cluster is the worker's bootstrap.servers unless producer.bootstrap.servers (worker) or \
         producer.override.bootstrap.servers (connector) name another"
    )]
    NotFound {
        topic: String,
        bootstrap_servers: String,
        source: AdminError,
    },
}

/// Why one letter wasn't confirmed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeadLetterError {
    /// The record is too large for the topic or the producer, also without the texts of its context.
    /// No try with these settings helps.
    #[error(
        "dead letter of {place} is too large; raise max.message.bytes of topic `{topic}` and \
         producer.override.max.request.size: {source}"
    )]
    TooLarge {
        place: String,
        topic: String,
        source: ProduceError,
    },
    /// The broker refuses it for good: no right to write, no such topic.
    #[error("dead letter of {place} refused by topic `{topic}`: {source}")]
    Refused {
        place: String,
        topic: String,
        source: ProduceError,
    },
    /// Not confirmed yet; another try may be. The letter may be in the topic all the same.
    #[error("dead letter of {place} not confirmed by topic `{topic}`: {}", .source.as_ref().map_or_else(|| "time is over".to_owned(), ToString::to_string))]
    Unconfirmed {
        place: String,
        topic: String,
        source: Option<ProduceError>,
    },
}

impl DeadLetterError {
    /// Whether another try may succeed.
    pub(crate) const fn is_retriable(&self) -> bool {
        matches!(self, Self::Unconfirmed { .. })
    }
}

/// Writes dead letters.
#[derive(Debug)]
pub(crate) struct DeadLetterQueue {
    topic: String,
    producer: Producer,
}

impl DeadLetterQueue {
    /// Finds the topic or creates it. An existing one is used as it is.
    ///
    /// # Errors
    /// [`OpenError`]: the topic is one of `sources`, or can't be had; the task must not start, since its
    /// first poison record would stop it.
    ///
    /// # Cancel safety
    /// The topic may have been created.
    pub(crate) async fn open(
        config: DeadLetterConfig,
        admin: &Admin,
        sources: &[String],
    ) -> Result<Self, OpenError> {
        let DeadLetterConfig {
            topic, producer, ..
        } = &config;
        if sources.contains(topic) {
            let topic = topic.clone();
            return Err(OpenError::IsSource { topic });
        }
        let found = admin.find_topic(topic).await;
        let found = found.map_err(|source| OpenError::NotFound {
            topic: topic.clone(),
            bootstrap_servers: config.servers(),
            source,
        })?;
        if found.is_none() {
            create(admin, &config).await?;
        }
        Ok(Self {
            producer: Producer::new(producer.clone()),
            topic: config.topic,
        })
    }

    /// Writes letters, and waits until each is confirmed by all in-sync replicas or has failed, `within`
    /// at the longest. The results are in the order of the letters. Only `Ok` allows its record to be
    /// settled.
    ///
    /// A letter that is too large is tried once more without the texts of its context.
    ///
    /// # Cancel safety
    /// Letters may have been written; nothing tells which.
    pub(crate) async fn write(
        &self,
        letters: &[DeadLetter],
        within: Duration,
    ) -> Vec<Result<(), DeadLetterError>> {
        let deadline = Instant::now() + within;
        let mut sent = Vec::with_capacity(letters.len());
        for letter in letters {
            sent.push(timeout_at(deadline, self.send(letter)).await);
        }
        let mut results = Vec::with_capacity(letters.len());
        for (letter, sent) in letters.iter().zip(sent) {
            let confirmed = async {
                match sent {
                    Ok(sent) => self.confirm(letter, sent).await.map_err(Some),
                    Err(_) => Err(None),
                }
            };
            let confirmed = timeout_at(deadline, confirmed).await.unwrap_or(Err(None));
            results.push(confirmed.map_err(|source| self.error(letter, source)));
        }
        results
    }

    async fn send(&self, letter: &DeadLetter) -> Result<DeliveryFuture, ProduceError> {
        self.producer.send(letter.record(&self.topic)).await
    }

    async fn confirm(
        &self,
        letter: &DeadLetter,
        sent: Result<DeliveryFuture, ProduceError>,
    ) -> Result<(), ProduceError> {
        let error = match delivered(sent).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let again = match &error {
            error if is_too_large(error) => letter.trimmed(),
            // Alone it isn't refused for the others.
            ProduceError::OtherRecordRefused { .. } => Some(letter.clone()),
            _ => None,
        };
        match again {
            Some(letter) => delivered(self.send(&letter).await).await,
            None => Err(error),
        }
    }

    fn error(&self, letter: &DeadLetter, source: Option<ProduceError>) -> DeadLetterError {
        let (place, topic) = (letter.place.clone(), self.topic.clone());
        match source {
            Some(source) if is_too_large(&source) => DeadLetterError::TooLarge {
                place,
                topic,
                source,
            },
            Some(source) if !source.is_retriable() => DeadLetterError::Refused {
                place,
                topic,
                source,
            },
            source => DeadLetterError::Unconfirmed {
                place,
                topic,
                source,
            },
        }
    }
}

async fn delivered(sent: Result<DeliveryFuture, ProduceError>) -> Result<(), ProduceError> {
    sent?.await.map(drop)
}

const fn is_too_large(error: &ProduceError) -> bool {
    matches!(
        error,
        ProduceError::RecordTooLarge { .. }
            | ProduceError::Broker {
                code: ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge,
                ..
            }
    )
}

/// Creates the topic. Another task may be faster.
async fn create(admin: &Admin, config: &DeadLetterConfig) -> Result<(), OpenError> {
    let DeadLetterConfig {
        topic, partitions, ..
    } = config;
    let create = async |replication_factor| {
        let created = admin
            .create_topic(topic, *partitions, replication_factor, &[])
            .await;
        match created {
            Err(error) if error.code() == Some(ErrorCode::TopicAlreadyExists) => Ok(()),
            created => created.map(drop),
        }
    };
    let replication_factor = config.replication_factor.unwrap_or(REPLICATION_FACTOR);
    let mut created = create(replication_factor).await;
    let too_many = |error: &AdminError| error.code() == Some(ErrorCode::InvalidReplicationFactor);
    if config.replication_factor.is_none() && created.as_ref().is_err_and(too_many) {
        tracing::warn!(
            topic,
            "There are too few brokers for {REPLICATION_FACTOR} replicas of the dead-letter topic; it is created \
             with the broker's default. Set errors.deadletterqueue.topic.replication.factor to have another."
        );
        created = create(BROKERS_DEFAULT).await;
    }
    created.map_err(|source| OpenError::NotCreated {
        topic: topic.clone(),
        bootstrap_servers: config.servers(),
        partitions: *partitions,
        replication_factor,
        source,
    })
}

/// Connect's default of `errors.deadletterqueue.topic.replication.factor`.
const REPLICATION_FACTOR: i16 = 3;

/// Replicas as the broker's `default.replication.factor` says.
const BROKERS_DEFAULT: i16 = -1;
