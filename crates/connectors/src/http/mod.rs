//! Sends records to an HTTP server: one a request, or several.
//!
//! ```properties
//! connector.class=http
//! topics=orders
//! http.url=https://api.example.org/${topic}/${key}
//! http.method=PUT
//! value.converter=org.apache.kafka.connect.storage.StringConverter
//! ```
//!
//! **What is sent.** `http.url`, `http.method`, `http.headers` and `http.body` are texts with places: `${topic}`,
//! `${partition}`, `${offset}`, `${timestamp}`, `${key}`, `${key.FIELD}`, `${value}`, `${value.FIELD.FIELD}` and
//! `${header.NAME}`. What is put in is percent-encoded in a URL, and can't leave its path; in a body it is a JSON value, or
//! the inside of a string where the place stands between quotation marks. Server and port are never taken from a
//! record. A record without such a field is refused, and the reason names the field. Without `http.body` the body is
//! the value as its converter gives it.
//!
//! **What answers mean.** 2xx: written. 408, 425, 429 and 5xx: later, and not before `Retry-After` has passed. 401, 403
//! and 407: later as well, since no record is to blame for wrong credentials, and none is given up for them; where only
//! some records are forbidden, while others are written, those are given up after `share.hold.max.ms`. Other 4xx:
//! refused, so that `errors.tolerance` decides. Everything else, and no answer at all: later. A request that
//! was sent and not answered may have been done: it is repeated with the same `Idempotency-Key`,
//! `topic-partition-offset` of the record. The lists of statuses can be set.
//!
//! **Batches** (`batch.max.size`) hold records whose method, URL and headers are the same. With
//! `batch.response.items`, an answer says of each record what became of it. A batch that is refused as a whole is sent
//! again in halves, until the record to blame stands alone. The key of a batch is
//! `topic-partition-first-last-digest`.
//!
//! **How many at a time.** the number follows the target's latency and refusals, from `http.concurrency.start` up to
//! `http.concurrency.max`. When only failures come back, the rest of a put isn't sent at all; the runtime's breaker
//! takes over (`share.breaker.failures`).
//!
//! **Secrets** (tokens, passwords, `http.headers.secret`, a URL with a user) are in no message; of URLs messages have the
//! server alone, since path and query may be secret, and what an answer repeats of them is hidden. Redirects (307, 308) are followed, but not to another server with credentials, nor from https to http.
//!
//! Each key, with the names that other HTTP sinks have for it: `sharegroup describe sink http`.

mod auth;
mod check;
mod concurrency;
mod config;
mod keys;
mod outcome;
mod request;
mod response;
mod service;
mod template;
#[cfg(test)]
mod tests;
mod transport;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sharegroup_sink::config::{ConfigProblem, KeyDef};
use sharegroup_sink::{
    CheckFuture, Connector, ConnectorConfig, DynSinkTask, Outcome, OutcomeSender, PutError,
    SinkBatch, SinkTask, TaskContext, TaskError,
};
use tokio::time::Instant;

use self::concurrency::Concurrency;
use self::config::HttpConfig;
use self::outcome::{Answer, NoAnswer};
use self::request::{Call, Calls, Names};
use self::response::Answers;
use self::service::Service;

/// The sink `http`.
#[derive(Clone, Copy, Debug)]
pub struct HttpConnector;

impl Connector for HttpConnector {
    fn name(&self) -> &'static str {
        "http"
    }

    fn purpose(&self) -> &'static str {
        "sends records to an HTTP server, one a request or in batches"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &[
            "io.aiven.kafka.connect.http.HttpSinkConnector",
            "io.confluent.connect.http.HttpSinkConnector",
        ]
    }

    fn keys(&self) -> &'static [KeyDef] {
        keys::KEYS
    }

    fn validate(&self, config: &ConnectorConfig) -> Vec<ConfigProblem> {
        match HttpConfig::read(config) {
            Ok((_, odd)) => odd,
            Err(problems) => problems,
        }
    }

    fn check<'a>(&'a self, config: &'a ConnectorConfig, _: &'a [String]) -> CheckFuture<'a> {
        Box::pin(check::check(config))
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn task(
        &self,
        config: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        let config = HttpConfig::read(config).map_err(|problems| {
            let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
            TaskError::new(texts.join("; "))
        });
        Ok(Box::new(HttpTask::new(config?.0)))
    }
}

/// Sends the records of one task.
#[derive(Debug)]
struct HttpTask {
    config: HttpConfig,
    concurrency: Concurrency,
    /// From `start` to `stop`.
    service: Option<Service>,
    answers: Option<Answers>,
}

impl HttpTask {
    fn new(config: HttpConfig) -> Self {
        let concurrency = Concurrency::new(config.concurrency_start, config.concurrency_max);
        Self {
            config,
            concurrency,
            service: None,
            answers: None,
        }
    }
}

impl SinkTask for HttpTask {
    async fn start(&mut self, _: &TaskContext) -> Result<(), TaskError> {
        let idle_max = self.config.concurrency_max as usize;
        let service = Service::new(&self.config.target, idle_max);
        self.service = Some(service.map_err(TaskError::new)?);
        if let Some(topic) = &self.config.response_topic {
            let answers = Answers::open(topic).await;
            self.answers = Some(answers.map_err(TaskError::new)?);
        }
        Ok(())
    }

    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let not_started = || PutError::broken("the task was not started");
        let service = self.service.as_ref().ok_or_else(not_started)?;
        let request = &self.config.request;
        let names = Names::new(request, &batch);
        let put = Put {
            config: &self.config,
            service,
            answers: self.answers.as_ref(),
            batch: &batch,
        };
        let mut calls = Calls::new(request, names, batch.records(), outcomes);
        let mut on_their_way = FuturesUnordered::new();
        let mut failures = Failures::default();
        // What can't be finished before the lock ends isn't begun.
        let in_time = |takes| {
            let at = outcomes.cut_off_at();
            at.is_none_or(|at| Instant::now() + takes < at)
        };
        let mut begun = 0;
        loop {
            // The first one tells how long they take now.
            while on_their_way.len() < self.concurrency.limit()
                && (begun == 0 || in_time(self.concurrency.takes()))
                && !failures.are_all(self.concurrency.limit())
                && let Some(call) = calls.next()
            {
                on_their_way.push(put.exchange(call));
                begun += 1;
            }
            let was_full = on_their_way.len() >= self.concurrency.limit();
            let Some(ended) = on_their_way.next().await else {
                break;
            };
            let pressed = ended.is_pressed();
            self.concurrency
                .ended(ended.began.elapsed(), pressed, was_full);
            failures.note(&ended.outcomes);
            if !(ended.is_to_be_halved() && calls.again_in_halves(ended.call.clone())) {
                ended.report(outcomes);
            }
        }
        if begun > 0
            && !in_time(self.concurrency.takes())
            && let Some(call) = calls.next()
        {
            // No outcome: it is given back when the put is cut off.
            drop(call);
            std::future::pending::<()>().await;
        }
        // What isn't sent has the fate of what was sent last.
        for call in calls {
            for item in &call.items {
                outcomes.report(item.offset, failures.of_rest());
            }
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), TaskError> {
        self.service = None;
        match self.answers.take() {
            Some(answers) => answers.close().await.map_err(TaskError::new),
            None => Ok(()),
        }
    }
}

/// What the requests of a put have in common.
#[derive(Clone, Copy)]
struct Put<'a> {
    config: &'a HttpConfig,
    service: &'a Service,
    answers: Option<&'a Answers>,
    batch: &'a SinkBatch,
}

impl Put<'_> {
    async fn exchange(self, call: Call) -> Ended {
        let began = Instant::now();
        let answer = self.service.exchange(&call).await;
        let what = call.describe();
        let mut outcomes = self
            .config
            .answer
            .outcomes(&answer, &what, call.items.len());
        if let Ok(answer) = &answer {
            let verdict = self.config.answer.verdict(answer.status.as_u16());
            response::log(self.config.response_log, answer, &what, verdict);
            if let Some(answers) = self.answers {
                let place = (&**self.batch.topic(), self.batch.partition());
                answers
                    .keep(answer, place, &call.items, &mut outcomes)
                    .await;
            }
        }
        Ended {
            call,
            began,
            answer,
            outcomes,
        }
    }
}

/// A request that has ended.
struct Ended {
    call: Call,
    began: Instant,
    answer: Result<Answer, NoAnswer>,
    /// Of its records in turn.
    outcomes: Vec<Outcome>,
}

impl Ended {
    /// Whether it says that the target has too much to do.
    fn is_pressed(&self) -> bool {
        self.answer.as_ref().map_or(true, Answer::is_pressed)
    }

    /// Whether a part of its records may be taken all the same. Who may send, and where to, is no matter of records.
    fn is_to_be_halved(&self) -> bool {
        let Ok(answer) = &self.answer else {
            return false;
        };
        let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused { .. });
        self.outcomes.iter().all(refused)
            && !answer.status.is_success()
            && !matches!(answer.status.as_u16(), 401 | 403 | 404 | 405 | 407 | 410)
    }

    fn report(self, outcomes: &OutcomeSender) {
        for (item, outcome) in self.call.items.iter().zip(self.outcomes) {
            outcomes.report(item.offset, outcome);
        }
    }
}

/// Failures that the target is to blame for, with nothing good between.
#[derive(Debug, Default)]
struct Failures {
    count: usize,
    last: Option<Outcome>,
}

impl Failures {
    fn note(&mut self, outcomes: &[Outcome]) {
        let failed =
            |outcome: &&Outcome| matches!(outcome, Outcome::Later { .. } | Outcome::Unknown { .. });
        match outcomes.iter().rfind(failed) {
            Some(last) if outcomes.iter().all(|outcome| failed(&outcome)) => {
                self.count += 1;
                self.last = Some(last.clone());
            }
            _ => *self = Self::default(),
        }
    }

    /// Whether they are as many as requests are on their way: another one would fail as well.
    fn are_all(&self, limit: usize) -> bool {
        self.count >= limit.clamp(FAILURES_MIN, FAILURES_MAX)
    }

    /// For what is not sent because of them.
    fn of_rest(&self) -> Outcome {
        let (why, after) = match &self.last {
            Some(Outcome::Later { reason, after }) => (reason.as_str(), *after),
            Some(Outcome::Unknown { reason }) => (reason.as_str(), None),
            _ => ("", None),
        };
        Outcome::Later {
            reason: format!("not sent, since others failed: {why}"),
            after,
        }
    }
}

/// Failures in a row after which nothing more is sent in a put, at least and at most.
const FAILURES_MIN: usize = 2;
const FAILURES_MAX: usize = 16;
