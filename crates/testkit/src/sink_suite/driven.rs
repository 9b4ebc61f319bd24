//! The sink's task alone, driven as the runtime drives it.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sharegroup_sink::convert::Chain;
use sharegroup_sink::{
    DynSinkTask, Outcome, Outcomes, OwnedRecord, PutError, SinkBatch, TaskContext, TaskError,
};
use sharegroup_wire::TopicId;
use tokio::time::{Instant, sleep, timeout};

use super::heard::Heard;
use super::report::{Checked, Ended};
use super::scene::{SINK, Scene, chain, cluster};
use super::target::{Recipe, Target};

/// A task that has been started.
pub(super) struct Driven<'a> {
    task: Box<dyn DynSinkTask>,
    context: TaskContext,
    chain: Arc<Chain>,
    topic: Arc<str>,
    heard: &'a Heard,
    patience: Duration,
}

/// A record of the suite's partition.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) offset: i64,
    /// None of a bad record.
    pub(super) number: Option<u64>,
    pub(super) delivery_count: i16,
    pub(super) record: OwnedRecord,
}

/// How a put went, its flush included where it had one.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) error: Option<PutError>,
    /// Of each record what was said of it.
    pub(super) outcomes: Vec<(Placed, Option<Outcome>)>,
}

impl Put {
    /// Records that the runtime would accept.
    pub(super) fn accepted(&self) -> impl Iterator<Item = &Placed> {
        let counts = |outcome: &Option<Outcome>| match outcome {
            Some(outcome) => *outcome == Outcome::Written,
            None => self.error.is_none(),
        };
        let accepted = self.outcomes.iter().filter(move |(_, o)| counts(o));
        accepted.map(|(placed, _)| placed)
    }

    /// Records that were not written, and may be put again.
    pub(super) fn rest(&self) -> Vec<Placed> {
        let again = |outcome: &Option<Outcome>| match outcome {
            Some(Outcome::Written | Outcome::Refused { .. }) => false,
            Some(_) => true,
            None => self.error.is_some(),
        };
        let rest = self.outcomes.iter().filter(|(_, o)| again(o));
        rest.map(|(placed, _)| placed.clone()).collect()
    }

    fn refuse(&mut self, offset: i64, reason: String) {
        let mut outcomes = self.outcomes.iter_mut();
        if let Some((_, outcome)) = outcomes.find(|(placed, _)| placed.offset == offset) {
            *outcome = Some(Outcome::Refused { reason });
        }
    }

    /// Records that were named as refused, and why.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&Placed, &str)> {
        let refused = self.outcomes.iter();
        refused.filter_map(|(placed, outcome)| match outcome {
            Some(Outcome::Refused { reason }) => Some((placed, reason.as_str())),
            _ => None,
        })
    }

    pub(super) const fn is_fatal(&self) -> bool {
        matches!(self.error, Some(PutError::Fatal { .. }))
    }

    pub(super) const fn is_broken(&self) -> bool {
        matches!(self.error, Some(PutError::Broken { .. }))
    }

    pub(super) fn told(&self) -> String {
        let error = self.error.as_ref().map(|error| chain(error));
        error.unwrap_or_else(|| "the put succeeded".to_owned())
    }
}

impl<'a, T: Target> Scene<'a, T> {
    /// Makes and starts a task of the sink.
    pub(super) async fn driven(&self) -> Checked<Driven<'a>> {
        let started = self.try_driven().await?;
        started.map_err(|error| Ended::broken("the sink starts", chain(&error)))
    }

    async fn try_driven(&self) -> Checked<Result<Driven<'a>, TaskError>> {
        let config = self.connector(&[])?;
        let converters = config.converters.make().map_err(cluster)?;
        let topic: Arc<str> = Arc::from(self.topic.as_str());
        let context = TaskContext::new(SINK, 0, 1, self.topic.as_str());
        let starting = async {
            let mut task = config.connector().task(&config, &context)?;
            task.start(&context).await?;
            task.open(std::slice::from_ref(&topic)).await?;
            Ok(task)
        };
        let started = in_time(self.patience, "start", starting).await?;
        if let Err(error) = &started {
            self.heard.hear("the error of a start", &told(error));
        }
        Ok(started.map(|task| Driven {
            task,
            context,
            chain: Arc::new(Chain::of(converters)),
            topic,
            heard: self.heard,
            patience: self.patience,
        }))
    }

    /// Good records whose offsets are their numbers.
    pub(super) fn placed(&self, recipes: &[Recipe]) -> Vec<Placed> {
        let place = |recipe: &Recipe| Placed {
            offset: i64::try_from(recipe.number).unwrap_or(i64::MAX),
            number: Some(recipe.number),
            delivery_count: 1,
            record: self.record(recipe),
        };
        recipes.iter().map(place).collect()
    }
}

impl Driven<'_> {
    /// Puts records, in the order of their offsets, and flushes them.
    pub(super) async fn put(&mut self, records: &[Placed]) -> Checked<Put> {
        let mut placed = records.to_vec();
        placed.sort_by_key(|placed| placed.offset);
        let batch = self.batch(&placed)?;
        let outcomes = Outcomes::of(&batch);
        let sender = outcomes.sender();
        let result = in_time(self.patience, "put", self.task.put(batch, &sender)).await?;
        let said = outcomes.take().unwrap_or_else(|| vec![None; placed.len()]);
        self.heard
            .hear("the outcomes of a put", &format!("{said:?}"));
        let mut put = Put {
            error: result.err(),
            outcomes: placed.into_iter().zip(said).collect(),
        };
        if let Some(error) = &put.error {
            self.heard.hear("the error of a put", &told(error));
        }
        if !put.is_broken() {
            self.flush(&mut put).await?;
        }
        for (offset, reason) in self.context.take_reported() {
            put.refuse(offset, reason);
        }
        Ok(put)
    }

    async fn flush(&mut self, put: &mut Put) -> Checked {
        let flushed = in_time(self.patience, "flush", self.task.flush()).await?;
        let Err(error) = flushed else {
            return Ok(());
        };
        self.heard.hear("the error of a flush", &told(&error));
        // Nothing of it counts as written.
        let mut outcomes = put.outcomes.iter_mut();
        outcomes.by_ref().for_each(|(_, outcome)| *outcome = None);
        put.error = Some(error);
        Ok(())
    }

    fn batch(&self, placed: &[Placed]) -> Checked<SinkBatch> {
        let record = |placed: &Placed| OwnedRecord {
            offset: placed.offset,
            timestamp: FIRST_TIMESTAMP + placed.offset,
            delivery_count: placed.delivery_count,
            ..placed.record.clone()
        };
        let records = placed.iter().map(record).collect();
        let batch = SinkBatch::from_records(self.topic.as_ref(), TOPIC_ID, 0, records);
        batch.converted(&self.chain).map_err(|error| {
            let promised = "the records of the target can be converted as it is configured";
            Ended::broken(promised, error.to_string())
        })
    }

    /// Puts good records, again and again where the sink asks for it, until all are written.
    pub(super) async fn write(&mut self, records: &[Placed]) -> Checked {
        let give_up_at = Instant::now() + self.patience;
        let mut rest = records.to_vec();
        loop {
            let put = self.put(&rest).await?;
            if let Some((placed, reason)) = put.refused().next() {
                let refused = Ended::broken("good records are written", reason.to_owned());
                return Err(refused.about(placed.number));
            }
            rest = put.rest();
            if rest.is_empty() {
                return Ok(());
            }
            let is_retriable = put.error.as_ref().is_none_or(PutError::is_retriable);
            if !is_retriable || Instant::now() > give_up_at {
                let not_written = Ended::broken("good records are written", put.told());
                return Err(not_written.about(rest.iter().filter_map(|placed| placed.number)));
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    /// Puts records and drops the put when it waits for the `polls`th time. Whether it had ended by then.
    pub(super) async fn cancel_put(&mut self, records: &[Placed], polls: usize) -> Checked<bool> {
        let batch = self.batch(records)?;
        let outcomes = Outcomes::of(&batch);
        let sender = outcomes.sender();
        let cancelled = until_poll(self.task.put(batch, &sender), polls);
        let ended = in_time(self.patience, "put", cancelled).await?;
        Ok(ended.is_some())
    }

    /// Closes and stops the task.
    pub(super) async fn end(mut self) -> Checked {
        let closed = in_time(self.patience, "close", self.task.close()).await?;
        let stopped = in_time(self.patience, "stop", self.task.stop()).await?;
        for error in [closed.err(), stopped.err()].into_iter().flatten() {
            self.heard.hear("the error of a stop", &told(&error));
        }
        Ok(())
    }
}

/// Polls a future until it has waited so often. `None` = it was not at its end.
async fn until_poll<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // Not polled again to no end: what it waits for wakes this as well.
            Poll::Pending if left > 0 => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        }
    })
    .await
}

async fn in_time<F: Future>(patience: Duration, what: &str, call: F) -> Checked<F::Output> {
    timeout(patience, call).await.map_err(|_| {
        let promised = format!("a {what} comes to an end");
        Ended::broken(promised, format!("it takes longer than {patience:?}"))
    })
}

/// Everything that an error shows.
fn told(error: &(dyn Error + 'static)) -> String {
    format!("{} {error:?}", chain(error))
}

const TOPIC_ID: TopicId = TopicId::ZERO;
/// Milliseconds; later records have later ones.
const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;
/// Before records are put again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
