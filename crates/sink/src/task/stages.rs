//! The stages before the put: records are converted and transformed when they are to be put for the
//! first time, and those that fail take no other with them.
//!
//! Each record goes through once, however often it is put. One that fails is given up as one that the
//! sink refuses is; where its error is retriable it is held first, and tried again as `errors.retry.*`
//! say.

use std::sync::Arc;

use super::failure::{Failure, StageFailure};
use super::flight::Piece;
use super::{ErrorLog, ShareSinkTask};
use crate::convert::StageError;
use crate::policy::stage_retry;
use crate::record::{SinkBatch, SinkRecord};
use crate::source::RecordSource;

impl<S: RecordSource> ShareSinkTask<S> {
    /// The records of a piece that can be put; the others are settled, or have failed.
    pub(super) fn convert(&mut self, piece: Piece) -> Piece {
        if self.settings.chain.never_fails() {
            return piece;
        }
        let now = self.now();
        let retries = self.settings.failures.stage_retries;
        let spread = self.spread;
        let metrics = &self.shared.metrics;
        let Some(flight) = self.held.get_mut(piece.flight) else {
            return piece;
        };
        let failed = |record: &SinkRecord<'_>, before: Option<Failure>, error: StageError| {
            metrics.stage_failed();
            let earlier = before.as_ref().and_then(|before| before.stage.as_ref());
            let first_at = earlier.map_or(now.at, |earlier| earlier.first_at);
            let failures = earlier.map_or(1, |earlier| earlier.failures.saturating_add(1));
            let tried_for = now.at.saturating_duration_since(first_at);
            let wait = stage_retry(retries, failures, tried_for, spread);
            let stage = StageFailure {
                wait: wait.filter(|_| error.is_retriable),
                error: Arc::new(error),
                first_at,
                failures,
            };
            Failure::of_stage(before, &place(record), stage, now)
        };
        let indexes = flight.convert(&piece.indexes, &self.settings.chain, failed);
        Piece { indexes, ..piece }
    }

    /// A line for each record that is given up, where `errors.log.enable` wants them.
    pub(super) fn log_given_up(&self, records: &SinkBatch, failure: &Failure) {
        let log = self.settings.failures.log;
        if log == ErrorLog::Off {
            return;
        }
        self.shared.metrics.errors_logged.add(records.len());
        let put = StageError::reported(&*failure.why);
        let stage = failure.stage.as_ref().map_or(&put, |stage| &stage.error);
        let shows = log == ErrorLog::WithRecords;
        for record in records.records() {
            tracing::error!(
                task = self.settings.name,
                stage = %stage.stage,
                class = %stage.class_name,
                topic = shows.then_some(&**record.topic),
                partition = shows.then_some(record.partition),
                offset = shows.then_some(record.offset),
                timestamp = shows.then_some(record.timestamp),
                error = %stage.error,
                "A record failed."
            );
        }
    }
}

/// `topic-partition offset n`.
fn place(record: &SinkRecord<'_>) -> String {
    let SinkRecord {
        topic,
        partition,
        offset,
        ..
    } = record;
    format!("{topic}-{partition} offset {offset}")
}
