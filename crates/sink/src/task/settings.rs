//! What a task is run with.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{ConnectorConfig, DeadLetterWriter, ErrorTolerance};
use crate::convert::Chain;
use crate::loss::LossLog;
use crate::policy::{SetAside, StageRetries, Tolerance};
use crate::prepare::Prepared;

/// What a task is run with.
#[derive(Clone, Debug)]
pub(crate) struct TaskSettings {
    /// Connector and number, for messages: `orders-sink-0`.
    pub(crate) name: String,
    /// Whether the answers to acknowledgements are awaited.
    pub(crate) explicit: bool,
    /// Deliveries the group allows.
    pub(crate) delivery_count_limit: i16,
    /// Tasks of the connector.
    pub(crate) tasks: i16,
    /// [`Connector::writes_at_once`](crate::Connector::writes_at_once).
    pub(crate) writes_at_once: bool,
    /// Longest time between two flushes.
    pub(crate) flush_interval: Duration,
    /// Budget for ending after a failure.
    pub(crate) shutdown_timeout: Duration,
    /// Where lost records are named.
    pub(crate) loss: LossLog,
    /// The topics records come from.
    pub(crate) topics: Vec<Arc<str>>,
    /// What records go through before they are put.
    pub(crate) chain: Arc<Chain>,
    /// What becomes of records that fail.
    pub(crate) failures: FailureSettings,
}

/// What becomes of records that fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureSettings {
    /// `errors.tolerance`.
    pub(crate) tolerance: Tolerance,
    /// Where records go that are set aside.
    pub(crate) set_aside: SetAside,
    /// `errors.retry.*`: of what comes before the put.
    pub(crate) stage_retries: StageRetries,
    /// `errors.log.*`.
    pub(crate) log: ErrorLog,
    /// `share.hold.max.ms`.
    pub(crate) hold_max: Duration,
    /// `share.put.stall.ms`.
    pub(crate) put_stall: Duration,
    /// `share.breaker.failures`.
    pub(crate) breaker_failures: u32,
    /// `share.breaker.probe.ms`.
    pub(crate) breaker_probe: Duration,
    /// Records that the broker keeps locked at most per partition (`share.partition.max.record.locks`).
    pub(crate) record_locks_max: u32,
}

/// `errors.log.enable` and `errors.log.include.messages`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ErrorLog {
    /// What fails is told by the turn, not by the record.
    #[default]
    Off,
    /// A line for each record that is given up: its stage, class and error.
    Failures,
    /// The same with the record's place and timestamp; never its key or value.
    WithRecords,
}

impl FailureSettings {
    /// As the connector wants it and the group allows; where the group has dead letters, the brokers write them of
    /// what is rejected.
    pub(crate) fn of(connector: &ConnectorConfig, group: &Prepared) -> Self {
        let (delivery, errors) = (&connector.delivery, &connector.errors);
        Self {
            tolerance: match errors.tolerance {
                ErrorTolerance::All => Tolerance::All,
                ErrorTolerance::None => Tolerance::None,
            },
            set_aside: match (&errors.dead_letters, group.has_dead_letters) {
                _ if delivery.dead_letter_writer == DeadLetterWriter::Broker => SetAside::Broker,
                (None, _) => SetAside::Nowhere,
                (Some(_), false) => SetAside::DeadLetter,
                (Some(_), true) => SetAside::DeadLetterAccepted,
            },
            stage_retries: StageRetries {
                timeout: errors.retry_timeout,
                delay_max: errors.retry_delay_max,
            },
            log: match (errors.log, errors.log_records) {
                (false, _) => ErrorLog::Off,
                (true, false) => ErrorLog::Failures,
                (true, true) => ErrorLog::WithRecords,
            },
            hold_max: delivery.hold_max,
            put_stall: delivery.put_stall,
            breaker_failures: delivery.breaker_failures,
            breaker_probe: delivery.breaker_probe,
            record_locks_max: group.record_locks_max,
        }
    }
}

#[cfg(test)]
impl Default for FailureSettings {
    fn default() -> Self {
        Self {
            tolerance: Tolerance::None,
            set_aside: SetAside::Nowhere,
            stage_retries: StageRetries {
                timeout: Some(Duration::ZERO),
                delay_max: Duration::from_secs(60),
            },
            log: ErrorLog::Off,
            hold_max: Duration::from_secs(300),
            put_stall: Duration::from_secs(600),
            breaker_failures: 5,
            breaker_probe: Duration::from_secs(1),
            record_locks_max: 2000,
        }
    }
}
