//! A target in memory, and a sink that writes to it: as it should, or with a flaw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use sharegroup_sink::config::{KeyDef, ValueKind};
use sharegroup_sink::{
    Connector, ConnectorConfig, DynSinkTask, OutcomeSender, OwnedRecord, PutError, Registry,
    SinkBatch, SinkRecord, SinkTask, TaskContext, TaskError,
};
use sharegroup_testkit::sink_suite::{
    Arrived, Delivery, Promises, Recipe, Refusals, SLOW, Target, TargetError, Trouble,
};
use tokio::time::sleep;

/// What is wrong with a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// What a task is given first it writes later.
    AcceptsBeforeWriting,
    /// A bad record fails the put, and nobody knows which it is.
    HidesTheBadRecord,
    /// A bad record counts as written.
    AcceptsTheBadRecord,
    /// The record behind a bad one is forgotten.
    LosesANeighbour,
    /// Records that are there are written again.
    Appends,
    /// An older record replaces a newer one.
    WritesOlderVersions,
    /// A record counts as there before it is.
    RemembersBeforeWriting,
    /// A slow target blocks the thread.
    BlocksItsThread,
    Hoards,
    RefusesWhileDown,
    RefusesWhileFull,
    /// Connects for each put, and blames the record.
    RefusesWhileRefused,
    /// A slow target is not waited for.
    DoesNotWait,
    /// A target that says nothing for a while has written.
    TakesSilenceForYes,
    /// A second task can't start.
    LetsOneIn,
    NeverReconnects,
    /// Waits for ever for a target that is down at the start.
    HangsAtStart,
    /// Who isn't let in blames the records.
    RefusesWithoutRights,
    LogsThePassword,
    /// The error of a start has it.
    ShowsThePassword,
}

/// The target.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    promises: Promises,
    flaw: Option<Flaw>,
    password: String,
    rows: Arc<Mutex<Rows>>,
}

/// Partition and offset.
type Place = (i32, i64);

#[derive(Debug, Default)]
struct Rows {
    /// What is written of others goes elsewhere.
    topic: String,
    /// Offset and number, by id or by key; several where a sink appends.
    rows: BTreeMap<String, Vec<(i64, u64)>>,
    trouble: Option<Trouble>,
    /// How often it was restarted.
    generation: u64,
    /// Tasks that have started.
    users: usize,
    /// Of the flaw.
    remembered: BTreeSet<Place>,
}

impl Store {
    pub(crate) fn new(delivery: Delivery, flaw: Option<Flaw>) -> Self {
        Self {
            promises: Promises::new(delivery),
            flaw,
            // Each its own: the log of a process is one.
            password: format!("open-sesame-{delivery:?}-{flaw:?}"),
            rows: Arc::default(),
        }
    }

    /// The target of a sink that can't name a bad record.
    pub(crate) fn all_or_nothing(delivery: Delivery) -> Self {
        Self {
            promises: Promises::new(delivery).refusals(Refusals::WholePut),
            ..Self::new(delivery, Some(Flaw::HidesTheBadRecord))
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap()
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn write(&self, row: Row) {
        let delivery = self.promises.delivery;
        let id = match delivery {
            Delivery::IdempotentByKey => row.key,
            _ => format!("{} {}", row.partition, row.offset),
        };
        let mut rows = self.lock();
        if rows.topic != row.topic {
            return;
        }
        let there = rows.rows.entry(id).or_default();
        let new = (row.offset, row.number);
        if delivery == Delivery::AtLeastOnce || self.has(Flaw::Appends) {
            there.push(new);
        } else if self.has(Flaw::WritesOlderVersions) || there.iter().all(|old| *old <= new) {
            *there = vec![new];
        }
    }
}

impl Target for Store {
    fn promises(&self) -> Promises {
        self.promises
    }

    fn registry(&self) -> Registry {
        Registry::new().with(StoreConnector(self.clone()))
    }

    async fn start(&mut self, topic: &str) -> Result<(), TargetError> {
        *self.lock() = Rows {
            topic: topic.to_owned(),
            ..Rows::default()
        };
        Ok(())
    }

    fn properties(&self) -> Vec<(String, String)> {
        vec![
            ("connector.class".to_owned(), "store".to_owned()),
            ("password".to_owned(), self.password.clone()),
        ]
    }

    fn good_record(&self, recipe: &Recipe) -> OwnedRecord {
        let fill = "x".repeat(recipe.bytes);
        OwnedRecord {
            key: Some(format!("k{}", recipe.key).into()),
            value: Some(format!("{} {fill}", recipe.number).into()),
            ..OwnedRecord::default()
        }
    }

    fn bad_record(&self, recipe: &Recipe) -> Result<OwnedRecord, TargetError> {
        Ok(OwnedRecord {
            key: Some(format!("k{}", recipe.key).into()),
            value: Some("no number".into()),
            ..OwnedRecord::default()
        })
    }

    async fn read_back(&mut self) -> Result<Vec<Arrived>, TargetError> {
        let rows = self.lock();
        let numbers = rows.rows.values().flatten();
        let arrived = |(_, number): &(i64, u64)| Arrived {
            number: *number,
            times: 1,
        };
        Ok(numbers.map(arrived).collect())
    }

    async fn trouble(&mut self, trouble: Trouble) -> Result<(), TargetError> {
        let mut rows = self.lock();
        match trouble {
            Trouble::Restarted => rows.generation += 1,
            other => rows.trouble = Some(other),
        }
        Ok(())
    }

    async fn mend(&mut self) -> Result<(), TargetError> {
        self.lock().trouble = None;
        Ok(())
    }

    fn wrong_credentials(&self) -> Result<Vec<(String, String)>, TargetError> {
        let wrong = format!("{}-wrong", self.password);
        Ok(vec![("password".to_owned(), wrong)])
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.password.clone()]
    }
}

struct StoreConnector(Store);

const KEYS: &[KeyDef] = &[KeyDef::required(
    "password",
    ValueKind::Password,
    "lets the sink in",
)];

impl Connector for StoreConnector {
    fn name(&self) -> &'static str {
        "store"
    }

    fn keys(&self) -> &'static [KeyDef] {
        KEYS
    }

    fn task(
        &self,
        config: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        Ok(Box::new(StoreTask {
            store: self.0.clone(),
            password: config.own("password").unwrap_or_default().to_owned(),
            connection: None,
            puts: 0,
            late: Vec::new(),
            hoard: Vec::new(),
            skipped: BTreeSet::new(),
            is_in: false,
        }))
    }
}

/// A record on its way.
#[derive(Debug)]
struct Row {
    topic: String,
    partition: i32,
    offset: i64,
    key: String,
    number: u64,
}

impl Row {
    /// `None` = a bad record.
    fn of(record: &SinkRecord<'_>) -> Option<Self> {
        let value = std::str::from_utf8(record.value?).ok()?;
        Some(Self {
            topic: record.topic.to_string(),
            partition: record.partition,
            offset: record.offset,
            key: String::from_utf8_lossy(record.key?).into_owned(),
            number: value.split(' ').next()?.parse().ok()?,
        })
    }
}

struct StoreTask {
    store: Store,
    password: String,
    /// The generation that it was made in.
    connection: Option<u64>,
    puts: usize,
    /// Accepted, and not written.
    late: Vec<Row>,
    hoard: Vec<Bytes>,
    /// Taken for written.
    skipped: BTreeSet<Place>,
    /// Among the store's users.
    is_in: bool,
}

impl StoreTask {
    fn has(&self, flaw: Flaw) -> bool {
        self.store.has(flaw)
    }

    fn connect(&mut self) -> Result<(), String> {
        if let Some(trouble @ (Trouble::Down | Trouble::Refusing)) = self.store.lock().trouble {
            return Err(format!("the target is {trouble}"));
        }
        if self.password != self.store.password {
            let shown = match self.has(Flaw::ShowsThePassword) {
                true => &self.password,
                false => "[hidden]",
            };
            return Err(format!("the password {shown} is wrong"));
        }
        self.connection = Some(self.store.lock().generation);
        Ok(())
    }

    fn enter(&mut self) -> Result<(), TaskError> {
        let mut rows = self.store.lock();
        if rows.users > 0 && self.store.has(Flaw::LetsOneIn) {
            return Err(TaskError::new("somebody else is here"));
        }
        rows.users += 1;
        self.is_in = true;
        Ok(())
    }

    /// A connection that works.
    fn connected(&mut self) -> Result<(), PutError> {
        if self.has(Flaw::RefusesWhileRefused) {
            self.connection = None;
        }
        let (trouble, generation) = {
            let rows = self.store.lock();
            (rows.trouble, rows.generation)
        };
        let is_dead = self.connection.is_some_and(|made| made != generation);
        if is_dead || trouble == Some(Trouble::Down) {
            if !self.has(Flaw::NeverReconnects) {
                self.connection = None;
            }
            let gone = "the connection is gone";
            return Err(match self.has(Flaw::RefusesWhileDown) && !is_dead {
                true => PutError::fatal(gone),
                false => PutError::retriable(gone),
            });
        }
        if self.connection.is_some() {
            return Ok(());
        }
        self.connect().map_err(|error| {
            let blames =
                self.has(Flaw::RefusesWhileRefused) || self.has(Flaw::RefusesWithoutRights);
            match blames {
                true => PutError::fatal(error),
                false => PutError::retriable(error),
            }
        })
    }

    async fn meet_trouble(&self) -> Result<(), PutError> {
        let trouble = self.store.lock().trouble;
        match trouble {
            Some(Trouble::Full) if self.has(Flaw::RefusesWhileFull) => {
                Err(PutError::fatal("no room"))
            }
            Some(Trouble::Full) => Err(PutError::retriable("no room")),
            Some(Trouble::Slow) if self.has(Flaw::BlocksItsThread) => {
                std::thread::sleep(SLOW);
                Ok(())
            }
            Some(Trouble::Slow) => {
                sleep(SLOW).await;
                Ok(())
            }
            Some(Trouble::Silent) if self.has(Flaw::TakesSilenceForYes) => {
                sleep(SLOW / 2).await;
                Ok(())
            }
            Some(Trouble::Silent) => {
                while self.store.lock().trouble == trouble {
                    sleep(SLOW / 40).await;
                }
                Err(PutError::retriable("it was silent"))
            }
            _ => Ok(()),
        }
    }

    fn write_late(&mut self) {
        for row in self.late.drain(..) {
            self.store.write(row);
        }
    }

    /// Takes the records for written that have been here before.
    fn remember(&mut self, batch: &SinkBatch) {
        let mut rows = self.store.lock();
        let places = batch
            .records()
            .map(|record| (record.partition, record.offset));
        self.skipped = places
            .filter(|place| !rows.remembered.insert(*place))
            .collect();
    }

    /// Writes the records, and says of bad ones that they are.
    fn write(&mut self, batch: &SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        let is_bad = |record: &SinkRecord<'_>| Row::of(record).is_none();
        if self.has(Flaw::HidesTheBadRecord) && batch.records().any(|record| is_bad(&record)) {
            return Err(PutError::fatal("some record has no number"));
        }
        let mut after_bad = false;
        for record in batch.records() {
            let forgets = after_bad && self.has(Flaw::LosesANeighbour);
            after_bad = is_bad(&record);
            match Row::of(&record) {
                Some(row) if forgets || self.skipped.contains(&(row.partition, row.offset)) => {}
                Some(row) if self.has(Flaw::AcceptsBeforeWriting) && self.puts == 1 => {
                    self.late.push(row);
                }
                Some(row) => self.store.write(row),
                None if self.has(Flaw::AcceptsTheBadRecord) => {}
                None => outcomes.refused(record.offset, "it has no number"),
            }
        }
        Ok(())
    }
}

impl SinkTask for StoreTask {
    async fn start(&mut self, _: &TaskContext) -> Result<(), TaskError> {
        if self.has(Flaw::LogsThePassword) {
            tracing::debug!(password = self.password, "Logging in.");
        }
        if self.has(Flaw::RefusesWithoutRights) {
            return Ok(());
        }
        let connected = self.connect();
        if connected.is_err()
            && self.has(Flaw::HangsAtStart)
            && self.password == self.store.password
        {
            std::future::pending::<()>().await;
        }
        connected.map_err(TaskError::new)?;
        self.enter()
    }

    async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
        self.connected()?;
        let trouble = self.store.lock().trouble;
        if trouble == Some(Trouble::Slow) && self.has(Flaw::DoesNotWait) {
            return Ok(());
        }
        self.puts += 1;
        self.write_late();
        if self.has(Flaw::RemembersBeforeWriting) {
            self.remember(&batch);
        }
        // The way there.
        sleep(Duration::from_millis(1)).await;
        if let Err(error) = self.meet_trouble().await {
            // A put that is dropped doesn't come this far.
            self.store.lock().remembered.clear();
            return Err(error);
        }
        if trouble == Some(Trouble::Silent) && self.has(Flaw::TakesSilenceForYes) {
            return Ok(());
        }
        if self.has(Flaw::Hoards) {
            self.hoard
                .extend(batch.records().filter_map(|record| record.value_bytes()));
        }
        self.write(&batch, outcomes)
    }

    async fn close(&mut self) -> Result<(), TaskError> {
        self.write_late();
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), TaskError> {
        if std::mem::take(&mut self.is_in) {
            let mut rows = self.store.lock();
            rows.users = rows.users.saturating_sub(1);
        }
        Ok(())
    }
}
