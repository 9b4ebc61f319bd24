//! What becomes of answers beside the outcomes of their records: a topic, the log.

use std::time::Duration;

use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::producer::{Producer, ProducerRecord};
use sharegroup_sink::Outcome;

use super::config::{ResponseLog, ResponseTopic};
use super::outcome::{Answer, Verdict};
use super::request::Item;

/// Writes answers to a topic.
#[derive(Debug)]
pub(super) struct Answers {
    topic: String,
    producer: Producer,
}

impl Answers {
    /// `Err`: the topic isn't there, or can't be asked for.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn open(config: &ResponseTopic) -> Result<Self, String> {
        let topic = config.topic.clone();
        let admin = Admin::new(config.producer.client.clone());
        match admin.find_topic(&topic).await {
            Ok(Some(_)) => Ok(Self {
                topic,
                producer: Producer::new(config.producer.clone()),
            }),
            Ok(None) => Err(format!("response.topic {topic} does not exist: create it")),
            Err(error) => Err(format!(
                "response.topic {topic} can't be looked up: {error}"
            )),
        }
    }

    /// Writes an answer for each of its records that is written; one that can't be written makes its record's
    /// outcome [`Outcome::Unknown`], so that the target is asked again. `place`: topic and partition.
    ///
    /// # Cancel safety
    /// Answers may be in the topic all the same.
    pub(super) async fn keep(
        &self,
        answer: &Answer,
        (topic, partition): (&str, i32),
        items: &[Item],
        outcomes: &mut [Outcome],
    ) {
        let mut deliveries = Vec::new();
        for (item, outcome) in items.iter().zip(outcomes) {
            if *outcome != Outcome::Written {
                continue;
            }
            let mut record = ProducerRecord::new(self.topic.clone())
                .value(answer.body.clone())
                .header("http.status", answer.status.as_str().to_owned())
                .header("topic", topic.to_owned())
                .header("partition", partition.to_string())
                .header("offset", item.offset.to_string());
            if answer.is_cut {
                record = record.header("http.body.cut", "response.max.bytes");
            }
            if let Some(key) = &item.key {
                record = record.key(key.clone());
            }
            match self.producer.send(record).await {
                Ok(delivery) => deliveries.push((outcome, delivery)),
                Err(error) => *outcome = self.lost(&error),
            }
        }
        for (outcome, delivery) in deliveries {
            if let Err(error) = delivery.await {
                *outcome = self.lost(&error);
            }
        }
    }

    fn lost(&self, error: &dyn std::error::Error) -> Outcome {
        let topic = &self.topic;
        Outcome::Unknown {
            reason: format!("its answer can't be written to topic {topic}: {error}"),
        }
    }

    pub(super) async fn close(self) -> Result<(), String> {
        let closed = self.producer.close(CLOSE_WITHIN).await;
        closed.map_err(|error| error.to_string())
    }
}

/// Logs an answer, where that is wanted.
pub(super) fn log(wanted: ResponseLog, answer: &Answer, what: &str, verdict: Verdict) {
    let has_failed = verdict != Verdict::Written;
    if wanted == ResponseLog::All || wanted == ResponseLog::Failed && has_failed {
        let body = answer.excerpt();
        let body = body.trim_start_matches(": ");
        tracing::info!(
            request = what,
            status = answer.status.as_u16(),
            body,
            "The target answered."
        );
    }
}

const CLOSE_WITHIN: Duration = Duration::from_secs(5);
