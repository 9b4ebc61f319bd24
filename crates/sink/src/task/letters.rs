//! Dead letters as the task loop sees them: a seam, so that the loop runs without a producer in tests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Mutex;

use super::Sink;
use crate::convert::StageError;
use crate::record::SinkBatch;

/// Keeps what the sink won't take. A letter is confirmed when the broker has it for good; only then is
/// its record settled.
pub(crate) trait DeadLetters: Send {
    /// Writes letters; one answer for each, in order. Ends within a bounded time.
    fn write<'a>(&'a mut self, letters: &'a [Letter]) -> Answers<'a>;
}

/// The answers to come: one for each letter, in order.
pub(crate) type Answers<'a> =
    Pin<Box<dyn Future<Output = Vec<Result<(), LetterError>>> + Send + 'a>>;

/// The dead letters of a task's lanes: one of them writes at a time.
pub(crate) struct SharedLetters(Arc<Mutex<Box<dyn DeadLetters>>>);

impl SharedLetters {
    /// Gives these to one sink, or has several share them.
    pub(crate) fn share(letters: Option<Box<dyn DeadLetters>>, sinks: &mut [Sink]) {
        let Some(letters) = letters else {
            return;
        };
        if let [sink] = sinks {
            sink.dead_letters = Some(letters);
            return;
        }
        let letters = Arc::new(Mutex::new(letters));
        for sink in sinks {
            sink.dead_letters = Some(Box::new(Self(Arc::clone(&letters))));
        }
    }
}

impl DeadLetters for SharedLetters {
    fn write<'a>(&'a mut self, letters: &'a [Letter]) -> Answers<'a> {
        Box::pin(async move { self.0.lock().await.write(letters).await })
    }
}

/// What is to be kept.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) of: LetterOf,
    /// Why it was not written, with its place.
    pub(crate) error: String,
    /// The stage before the put that failed, where it was one.
    pub(crate) stage: Option<Arc<StageError>>,
}

/// Whose letter it is.
#[derive(Clone, Debug)]
pub(crate) enum LetterOf {
    /// A batch of one record.
    Record(SinkBatch),
    /// Records that can't be read, as they came.
    Corrupt(CorruptRange),
}

/// Offsets that can't be read.
#[derive(Clone, Debug)]
pub(crate) struct CorruptRange {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) first_offset: i64,
    pub(crate) last_offset: i64,
    /// Highest of their delivery counts.
    pub(crate) delivery_count: i16,
    /// The bytes as they came.
    pub(crate) bytes: Bytes,
    /// What is wrong, with the place.
    pub(crate) error: String,
}

impl CorruptRange {
    /// `orders-3 offsets 7 to 9`.
    pub(crate) fn describe(&self) -> String {
        let Self {
            topic,
            partition,
            first_offset,
            last_offset,
            ..
        } = self;
        format!("{topic}-{partition} offsets {first_offset} to {last_offset}")
    }
}

/// A letter that was not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct LetterError {
    pub(crate) text: String,
    /// Whether another try may write it.
    pub(crate) is_retriable: bool,
}
