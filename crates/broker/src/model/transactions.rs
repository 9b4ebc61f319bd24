//! Transactions (KIP-98), also those whose partitions Produce adds (KIP-890).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sharegroup_wire::ErrorCode;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder};

use super::Model;
use super::limits::TRANSACTIONAL_IDS_MAX;
use super::timers::Timer;
use super::topics::Place;

/// A producer's id and epoch.
pub type ProducerEpoch = (i64, i16);

/// One transactional id.
#[derive(Debug, Clone)]
pub(super) struct Transaction {
    pub(super) producer: ProducerEpoch,
    pub(super) timeout: Duration,
    /// When the open transaction began, and its partitions.
    pub(super) open: Option<(Instant, BTreeSet<Place>)>,
}

/// The transactional ids of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Transactions {
    pub(super) by_id: BTreeMap<String, Transaction>,
}

impl Transactions {
    /// Makes partitions part of the open transaction, or opens one; returns whether any is new to it.
    ///
    /// # Errors
    /// INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    pub fn add(
        &mut self,
        now: Instant,
        id: &str,
        producer: ProducerEpoch,
        places: impl IntoIterator<Item = Place>,
    ) -> Result<bool, ErrorCode> {
        let transaction = self.check(id, producer)?;
        let was_open = transaction.open.is_some();
        let (_, open) = transaction
            .open
            .get_or_insert_with(|| (now, BTreeSet::new()));
        let count = open.len();
        open.extend(places);
        Ok(!was_open || open.len() > count)
    }

    /// Whether a partition is part of the producer's open transaction.
    ///
    /// # Errors
    /// As [`add`](Self::add), and INVALID_TXN_STATE.
    pub fn verify(
        &mut self,
        id: &str,
        producer: ProducerEpoch,
        place: Place,
    ) -> Result<(), ErrorCode> {
        let transaction = self.check(id, producer)?;
        let open = transaction.open.as_ref();
        if open.is_some_and(|(_, places)| places.contains(&place)) {
            Ok(())
        } else {
            Err(ErrorCode::InvalidTxnState)
        }
    }

    fn check(&mut self, id: &str, producer: ProducerEpoch) -> Result<&mut Transaction, ErrorCode> {
        let known = self.by_id.get_mut(id);
        let transaction = known.filter(|transaction| transaction.producer.0 == producer.0);
        let transaction = transaction.ok_or(ErrorCode::InvalidProducerIdMapping)?;
        if transaction.producer.1 != producer.1 {
            return Err(ErrorCode::ProducerFenced);
        }
        Ok(transaction)
    }
}

impl Model {
    /// Makes partitions part of the open transaction, or opens one.
    ///
    /// # Errors
    /// As [`Transactions::add`].
    pub(crate) fn add_to_transaction(
        &mut self,
        now: Instant,
        id: &str,
        producer: ProducerEpoch,
        places: impl IntoIterator<Item = Place>,
    ) -> Result<(), ErrorCode> {
        if self.transactions.add(now, id, producer, places)? {
            self.note_transaction(id);
            self.watch_transaction(id);
        }
        Ok(())
    }

    /// Gives a transactional id its producer id and a new epoch; an open transaction of an older
    /// producer is aborted.
    ///
    /// # Errors
    /// INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, COORDINATOR_NOT_AVAILABLE where there are too many ids.
    pub(crate) fn init_transactions(
        &mut self,
        now: Instant,
        id: &str,
        timeout: Duration,
        expected: ProducerEpoch,
    ) -> Result<ProducerEpoch, ErrorCode> {
        let timeout_max = self.configs.broker_number("transaction.max.timeout.ms");
        if timeout.is_zero() || timeout.as_millis() > u128::try_from(timeout_max).unwrap_or(0) {
            return Err(ErrorCode::InvalidTransactionTimeout);
        }
        let known = self
            .transactions
            .by_id
            .get(id)
            .map(|transaction| transaction.producer);
        if expected.0 >= 0 && known.is_some_and(|known| known != expected) {
            return Err(ErrorCode::ProducerFenced);
        }
        if known.is_none() && self.transactions.by_id.len() >= TRANSACTIONAL_IDS_MAX {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        self.abort_transaction(now, id);
        let known = self
            .transactions
            .by_id
            .get(id)
            .map(|transaction| transaction.producer);
        let producer = match known {
            Some(producer) => self.bumped(producer),
            None => (self.next_producer_id(), 0),
        };
        let transaction = Transaction {
            producer,
            timeout,
            open: None,
        };
        self.transactions.by_id.insert(id.to_owned(), transaction);
        self.note_transaction(id);
        Ok(producer)
    }

    /// The next epoch, or another producer id where there is none left.
    fn bumped(&mut self, (producer_id, epoch): ProducerEpoch) -> ProducerEpoch {
        match epoch.checked_add(1) {
            Some(epoch) if epoch < i16::MAX => (producer_id, epoch),
            _ => (self.next_producer_id(), 0),
        }
    }

    /// Commits or aborts the open transaction; returns the producer and epoch of the next one.
    ///
    /// # Errors
    /// As [`Transactions::add`], and INVALID_TXN_STATE where nothing is open; a producer that gets a
    /// new epoch each time (`bumps`) may end what it never began.
    pub(crate) fn end_transaction(
        &mut self,
        now: Instant,
        id: &str,
        producer: ProducerEpoch,
        commits: bool,
        bumps: bool,
    ) -> Result<ProducerEpoch, ErrorCode> {
        let open = self.transactions.check(id, producer)?.open.take();
        if open.is_none() && !bumps {
            return Err(ErrorCode::InvalidTxnState);
        }
        let next = if bumps {
            self.bumped(producer)
        } else {
            producer
        };
        let epoch = if next.0 == producer.0 {
            next.1
        } else {
            producer.1
        };
        for place in open.map(|(_, places)| places).unwrap_or_default() {
            self.write_marker(now, place, (producer.0, epoch), commits);
        }
        if let Some(transaction) = self.transactions.by_id.get_mut(id) {
            transaction.producer = next;
        }
        self.note_transaction(id);
        Ok(next)
    }

    /// Aborts what is open and shuts its producer out.
    fn abort_transaction(&mut self, now: Instant, id: &str) {
        let open = self
            .transactions
            .by_id
            .get(id)
            .filter(|transaction| transaction.open.is_some());
        if let Some(producer) = open.map(|transaction| transaction.producer) {
            let aborted = self.end_transaction(now, id, producer, false, true);
            debug_assert!(aborted.is_ok());
        }
    }

    /// Aborts a transaction that has been open for too long.
    pub(super) fn expire_transaction(&mut self, now: Instant, id: &str) {
        let known = self.transactions.by_id.get(id);
        let end = known.and_then(|known| Some(known.open.as_ref()?.0 + known.timeout));
        if end.is_some_and(|end| end <= now) {
            self.abort_transaction(now, id);
        }
    }

    /// Sets a timer for the end of an open transaction.
    pub(super) fn watch_transaction(&mut self, id: &str) {
        let known = self.transactions.by_id.get(id);
        let end = known.and_then(|known| Some(known.open.as_ref()?.0 + known.timeout));
        if let Some(end) = end {
            self.timers.set(end, Timer::Transaction(id.to_owned()));
        }
    }

    /// Appends the marker that ends a transaction in one partition.
    fn write_marker(&mut self, now: Instant, place: Place, producer: ProducerEpoch, commits: bool) {
        let unix_ms = self.unix_ms(now);
        let Some(partition) = self.topics.partition_mut(place) else {
            return;
        };
        if let Some(marker) = marker(unix_ms, producer, commits) {
            let before = partition.log.bounds();
            let appended = partition.log.append(&marker, partition.leader_epoch, None);
            partition
                .log
                .end_transaction(producer.0, producer.1, appended.base_offset, commits);
            self.note_log(place, before);
            self.touch(place);
        }
    }
}

/// A control batch of one record: the kind of the end, and the coordinator's epoch.
fn marker(unix_ms: i64, (producer_id, epoch): ProducerEpoch, commits: bool) -> Option<RecordBatch> {
    let mut builder = RecordBatchBuilder::new(Compression::None)
        .producer(producer_id, epoch, -1)
        .transactional(true)
        .control(true);
    let key = [0, 0, 0, u8::from(commits)];
    builder.push(unix_ms, Some(&key), Some(&[0; 6]), []).ok()?;
    RecordBatch::read(builder.build(0).ok()?).ok()
}
