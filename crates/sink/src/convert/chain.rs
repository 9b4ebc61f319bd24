//! What a record goes through between poll and put: its converters, then transformations.

use std::fmt;
use std::sync::{Arc, LazyLock};

use super::{ByteArrayConverter, ConvertedRecord, Converters, SimpleHeaderConverter, StageError};
use crate::record::SinkRecord;

/// The stages before the put, in order: converters of key, value and headers, then transformations.
#[derive(Debug)]
pub struct Chain {
    converters: Converters,
    transformations: Vec<Box<dyn Transformation>>,
    never_fails: bool,
    is_raw: bool,
}

/// Changes records on their way to a task. None can be configured yet: this is their place.
pub(crate) trait Transformation: fmt::Debug + Send + Sync {
    /// The record as it goes on; `None` = it is dropped, and counts as done.
    ///
    /// # Errors
    /// [`StageError`] of the stage [`Transformation`](super::Stage::Transformation): the record is
    /// tried again within `errors.retry.timeout` where that is retriable, else it is given up.
    fn apply(&self, record: ConvertedRecord) -> Result<Option<ConvertedRecord>, StageError>;
}

impl Chain {
    /// A chain without transformations.
    #[must_use]
    pub fn of(converters: Converters) -> Self {
        Self::new(converters, Vec::new())
    }

    pub(crate) fn new(
        converters: Converters,
        transformations: Vec<Box<dyn Transformation>>,
    ) -> Self {
        let never_fails = converters.never_fail() && transformations.is_empty();
        Self {
            is_raw: never_fails && converters.are_raw(),
            never_fails,
            converters,
            transformations,
        }
    }

    /// The chain of Connect's defaults: keys and values stay bytes, headers are guessed.
    pub(crate) fn raw() -> Arc<Self> {
        static RAW: LazyLock<Arc<Chain>> = LazyLock::new(|| {
            Arc::new(Chain::of(Converters {
                key: Box::new(ByteArrayConverter::new()),
                value: Box::new(ByteArrayConverter::new()),
                header: Box::new(SimpleHeaderConverter::new()),
            }))
        });
        Arc::clone(&RAW)
    }

    /// Whether no record fails or is dropped, so that none needs to be looked into before a task asks
    /// for its data.
    #[must_use]
    pub const fn never_fails(&self) -> bool {
        self.never_fails
    }

    /// Whether, besides, keys and values stay bytes.
    #[must_use]
    pub const fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// What becomes of a value in a chain that never fails, and so transforms nothing, where it is just the
    /// text that these bytes are.
    pub(crate) fn text<'a>(&self, value: &'a [u8]) -> Option<&'a str> {
        self.converters.value.text(value)
    }

    /// Takes a record through all stages. `None` = a transformation dropped it.
    ///
    /// # Errors
    /// [`StageError`] of the first stage that fails.
    pub fn run(&self, record: &SinkRecord<'_>) -> Result<Option<ConvertedRecord>, StageError> {
        let mut data = self.converters.convert(record)?;
        for transformation in &self.transformations {
            match transformation.apply(data)? {
                Some(transformed) => data = transformed,
                None => return Ok(None),
            }
        }
        Ok(Some(data))
    }
}
