//! Writes records into tables: one statement for many rows, ever fewer where one of them is to blame.
//!
//! Each statement is a transaction of its own and writes all of its rows or none. Rows that can't be there yet are
//! copied straight into the table; where that fails, and for all others, a statement writes them that looks at the rows
//! that are there, so that it may be repeated.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{SinkExt, future};
use sharegroup_sink::{
    Outcome, OutcomeSender, PutError, SinkBatch, SinkRecord, TaskContext, TaskError,
};
use tokio_postgres::types::ToSql;

use super::config::{Guard, Mode, PlaceColumns, PostgresConfig, RowKey};
use super::connect::{Session, within};
use super::identifier::TableName;
use super::layout::{Layout, wanted};
use super::outcome::{Trouble, TroubleKind, needs_new_connection};
use super::plan::{NoRow, Plan, create};
use super::request::{Order, Request, Rows};
use super::statement::Statements;
use super::table::Table;
use super::timeouts::{Held, Limits};

/// One task's way to the database.
#[derive(Debug)]
pub(super) struct Writer {
    config: PostgresConfig,
    place: PlaceColumns,
    context: TaskContext,
    /// None while a put has it: one that is dropped halfway leaves none behind.
    session: Option<Session>,
    /// By topic.
    plans: HashMap<Arc<str>, Plan>,
}

/// The records of a put, and how far they are.
struct Work<'a> {
    records: &'a [SinkRecord<'a>],
    /// Which have their outcome.
    done: &'a mut [bool],
    outcomes: &'a OutcomeSender,
    /// Whether rows may be copied without a look at those that are there.
    may_copy: bool,
    held: Held,
}

/// One put on its way.
struct Put<'a> {
    config: &'a PostgresConfig,
    place: &'a PlaceColumns,
    session: &'a mut Session,
    plan: &'a mut Plan,
    work: Work<'a>,
}

/// What a statement that was carried out leaves to say.
enum Done {
    /// All rows are written.
    Written,
    /// It is said of each record what became of it.
    Reported,
}

impl Writer {
    pub(super) fn new(config: PostgresConfig, place: PlaceColumns, context: TaskContext) -> Self {
        Self {
            config,
            place,
            context,
            session: None,
            plans: HashMap::new(),
        }
    }

    /// Connects.
    pub(super) async fn start(&mut self) -> Result<(), TaskError> {
        self.session = Some(Session::open(&self.config, Held::default()).await?);
        Ok(())
    }

    /// Looks at the tables of topics.
    pub(super) async fn open(&mut self, topics: &[Arc<str>]) -> Result<(), TaskError> {
        let session = match self.session.take().filter(Session::is_usable) {
            Some(session) => session,
            None => Session::open(&self.config, Held::default()).await?,
        };
        for topic in topics {
            let name = self.table_name(topic).map_err(TaskError::new)?;
            let Some(table) = self.describe(&session, &name).await? else {
                if self.config.create {
                    continue;
                }
                let message = format!(
                    "there is no table {name} for the topic {topic}: make it, set auto.create=true, or name another with table.name.format"
                );
                return Err(TaskError::new(message));
            };
            let plan = Plan::new(table);
            plan.check(&self.config, &self.place)
                .map_err(TaskError::new)?;
            self.plans.insert(Arc::clone(topic), plan);
        }
        self.session = Some(session);
        Ok(())
    }

    fn table_name(&self, topic: &str) -> Result<TableName, String> {
        let name = TableName::of(&self.config.table_format, topic);
        name.map_err(|reason| format!("table.name.format, for the topic {topic}, {reason}"))
    }

    /// Closes the connection.
    pub(super) fn close(&mut self) {
        self.session = None;
    }

    /// Writes the records of a batch.
    ///
    /// # Cancel safety
    /// The statement that is under way may be carried out or not; its connection is closed.
    pub(super) async fn put(
        &mut self,
        batch: &SinkBatch,
        outcomes: &OutcomeSender,
    ) -> Result<(), PutError> {
        let records: Vec<_> = batch.records().collect();
        let mut done = vec![false; records.len()];
        // What came before may be there.
        let is_new = records.iter().all(|record| record.delivery_count <= 1);
        let held = Held {
            duration: self.context.lock_duration(),
            cut_off_at: outcomes.cut_off_at(),
        };
        let work = Work {
            records: &records,
            done: &mut done,
            outcomes,
            may_copy: self.config.mode == Mode::Insert
                && (is_new || self.config.key == RowKey::None),
            held,
        };
        let topic = batch.topic();
        let trouble = match self.try_put(topic, work).await {
            Err(trouble) if trouble.kind == TroubleKind::Changed => trouble,
            ended => return ended.map_err(Trouble::put_error),
        };
        tracing::info!(topic = %topic, reason = %trouble, "The table is looked at again.");
        self.plans.remove(topic);
        let work = Work {
            records: &records,
            done: &mut done,
            outcomes,
            may_copy: false,
            held,
        };
        self.try_put(topic, work).await.map_err(Trouble::put_error)
    }

    async fn try_put(&mut self, topic: &Arc<str>, work: Work<'_>) -> Result<(), Trouble> {
        let mut session = match self.session.take().filter(Session::is_usable) {
            Some(session) => session,
            None => Session::open(&self.config, work.held).await?,
        };
        let result = self.put_over(&mut session, topic, work).await;
        let is_unknown = matches!(&result, Err(trouble) if trouble.kind == TroubleKind::Unknown);
        self.session = Some(session).filter(|_| !is_unknown);
        result
    }

    async fn put_over(
        &mut self,
        session: &mut Session,
        topic: &Arc<str>,
        mut work: Work<'_>,
    ) -> Result<(), Trouble> {
        let broken = |reason: String| Trouble::new(TroubleKind::Broken, reason);
        if !self.plans.contains_key(topic) {
            let name = self.table_name(topic).map_err(broken)?;
            let Some(table) = self.table(session, &name, &mut work).await? else {
                return Ok(());
            };
            let plan = Plan::new(table);
            plan.check(&self.config, &self.place).map_err(broken)?;
            self.plans.insert(Arc::clone(topic), plan);
        }
        let Some(plan) = self.plans.get_mut(topic) else {
            return Ok(());
        };
        let places: Vec<_> = (0..work.records.len()).collect();
        let mut put = Put {
            config: &self.config,
            place: &self.place,
            session,
            plan,
            work,
        };
        for chunk in places.chunks(put.config.rows_max.max(1)) {
            put.write(chunk).await?;
        }
        Ok(())
    }

    /// The table as it is; made for the first record whose schema is enough for that. `None`: there is no such record,
    /// and all are refused.
    async fn table(
        &self,
        session: &mut Session,
        name: &TableName,
        work: &mut Work<'_>,
    ) -> Result<Option<Table>, Trouble> {
        if let Some(table) = self.describe(session, name).await? {
            return Ok(Some(table));
        }
        if !self.config.create {
            let why = format!("there is no table {name}");
            return Err(Trouble::new(TroubleKind::Broken, why));
        }
        for (place, record) in work.records.iter().enumerate() {
            let data = record.data();
            let fields = match wanted(&self.config, &self.place, record, &data, false) {
                Ok(fields) => fields,
                Err(reason) => {
                    work.report(place, refused(reason));
                    continue;
                }
            };
            let deadline = session.deadline();
            let made = create(&mut session.client, name, &fields);
            match within(deadline, made).await {
                Ok(()) => return self.describe(session, name).await,
                Err(NoRow::Trouble(trouble)) => return Err(trouble),
                Err(NoRow::Refused(reason)) => work.report(place, refused(reason)),
            }
        }
        Ok(None)
    }

    async fn describe(
        &self,
        session: &Session,
        name: &TableName,
    ) -> Result<Option<Table>, Trouble> {
        let described = async {
            let described = Table::describe(&session.client, name).await;
            described.map_err(|error| Trouble::of(&error))
        };
        within(session.deadline(), described).await
    }
}

impl Work<'_> {
    fn is_open(&self, place: usize) -> bool {
        self.done.get(place) == Some(&false)
    }

    fn report(&mut self, place: usize, outcome: Outcome) {
        if let (Some(done), Some(record)) = (self.done.get_mut(place), self.records.get(place)) {
            *done = true;
            self.outcomes.report(record.offset, outcome);
        }
    }
}

impl Put<'_> {
    /// Writes the records at these places.
    async fn write(&mut self, places: &[usize]) -> Result<(), Trouble> {
        let mut open = self.sort(places).await?;
        // The first is written first.
        open.reverse();
        let mut failed: Option<Trouble> = None;
        while let Some(mut rows) = open.pop() {
            let order = match self.work.may_copy && self.can_copy(&rows.layout) {
                true => Order::Rows,
                false => Order::Columns,
            };
            let (request, rest) = self.request(order, &mut rows);
            open.extend(rest);
            if request.len() == 0 {
                continue;
            }
            let trouble = match self.run(request, &rows, order).await {
                Ok(Done::Written) => {
                    self.report(&rows, &Outcome::Written);
                    continue;
                }
                Ok(Done::Reported) => continue,
                Err(trouble) => trouble,
            };
            match trouble.kind {
                TroubleKind::Row if trouble.row.is_some_and(|row| row < rows.records.len()) => {
                    open.extend(self.without(rows, &trouble));
                }
                TroubleKind::Row | TroubleKind::RowLater if order == Order::Rows => {
                    self.work.may_copy = false;
                    open.push(rows);
                }
                TroubleKind::Row | TroubleKind::RowLater if rows.records.len() > 1 => {
                    let second = rows.records.split_off(rows.records.len() / 2);
                    let layout = Arc::clone(&rows.layout);
                    open.push(Rows {
                        layout,
                        records: second,
                    });
                    open.push(rows);
                }
                TroubleKind::Row => self.report(&rows, &refused(trouble.reason)),
                TroubleKind::RowLater => {
                    self.report(&rows, &later(trouble.reason.clone()));
                    failed = Some(trouble);
                }
                TroubleKind::Unknown => {
                    let reason = trouble.reason.clone();
                    self.report(&rows, &Outcome::Unknown { reason });
                    return Err(trouble);
                }
                _ => return Err(trouble),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Refuses the row that is to blame. Those behind it, and those before it, which were fine: the next to be written.
    fn without(&mut self, mut rows: Rows, trouble: &Trouble) -> [Rows; 2] {
        let row = trouble.row.unwrap_or(0).min(rows.records.len());
        let behind = rows.records.split_off((row + 1).min(rows.records.len()));
        let bad = rows.records.split_off(row);
        let part = |records| Rows {
            layout: Arc::clone(&rows.layout),
            records,
        };
        let (behind, bad) = (part(behind), part(bad));
        self.report(&bad, &refused(trouble.reason.clone()));
        [behind, rows]
    }

    /// Records by what their rows are like. Where their order counts, those between two of one kind part them.
    async fn sort(&mut self, places: &[usize]) -> Result<Vec<Rows>, Trouble> {
        let records = self.work.records;
        let keeps_order = self.config.mode != Mode::Insert && self.config.guard != Guard::Place
            || self.config.mode == Mode::Insert && self.config.delete;
        let mut sorted: Vec<Rows> = Vec::new();
        for &place in places {
            let Some(record) = records.get(place).filter(|_| self.work.is_open(place)) else {
                continue;
            };
            let data = record.data();
            let is_null = data.value.value.is_null();
            let deletes = is_null && self.config.delete;
            if is_null && !deletes && self.config.value_column.is_none() {
                let outcome = self.of_null();
                self.work.report(place, outcome);
                continue;
            }
            let layout = self
                .plan
                .layout(
                    self.session,
                    self.config,
                    self.place,
                    record,
                    &data,
                    deletes,
                )
                .await;
            let layout = match layout {
                Ok(layout) => layout,
                Err(NoRow::Refused(reason)) => {
                    self.work.report(place, refused(reason));
                    continue;
                }
                Err(NoRow::Trouble(trouble)) => return Err(trouble),
            };
            let is_like = |rows: &Rows| Arc::ptr_eq(&rows.layout, &layout);
            let like = match keeps_order {
                true => sorted.last_mut().filter(|rows| is_like(rows)),
                false => sorted.iter_mut().find(|rows| is_like(rows)),
            };
            match like {
                Some(rows) => rows.records.push(place),
                None => sorted.push(Rows {
                    layout,
                    records: vec![place],
                }),
            }
        }
        Ok(sorted)
    }

    fn of_null(&self) -> Outcome {
        if self.config.ignore_nulls {
            return Outcome::Written;
        }
        let reason = "its value is null: set delete.enabled=true with pk.mode=record_key, or behavior.on.null.values=ignore";
        refused(reason.to_owned())
    }

    fn can_copy(&self, layout: &Layout) -> bool {
        let is_binary = |(place, form): &(usize, super::encode::Form)| {
            let column = self.plan.table.columns.get(*place);
            *form == super::encode::Form::Binary && column.is_some()
        };
        self.plan.table.takes_copy
            && !layout.shape.is_delete
            && layout.shape.columns.iter().all(is_binary)
    }

    /// The rows in binary form, and those that are too many for one statement; what doesn't fit its column is refused
    /// and left out.
    fn request(&mut self, order: Order, rows: &mut Rows) -> (Request, Option<Rows>) {
        let mut request = Request::new(order, &rows.layout, rows.records.len());
        let mut places = std::mem::take(&mut rows.records).into_iter();
        while !request.is_full()
            && let Some(place) = places.next()
        {
            let Some(record) = self.work.records.get(place) else {
                continue;
            };
            let data = record.data();
            match request.push(&self.plan.table, &rows.layout, record, &data) {
                Ok(()) => rows.records.push(place),
                Err(reason) => self.work.report(place, refused(reason)),
            }
        }
        let records: Vec<_> = places.collect();
        let layout = Arc::clone(&rows.layout);
        let rest = (!records.is_empty()).then_some(Rows { layout, records });
        (request, rest)
    }

    /// Carries out the statement, again and again while it collides with others.
    async fn run(&mut self, request: Request, rows: &Rows, order: Order) -> Result<Done, Trouble> {
        let limits = self.config.timeouts.limits(self.work.held);
        let deadline = limits.deadline();
        within(deadline, self.limit(limits)).await?;
        if order == Order::Rows {
            return within(deadline, self.copy(request.into_copy(), rows)).await;
        }
        let mut collisions = 0;
        loop {
            let trouble = match within(deadline, self.run_once(&request, rows)).await {
                Ok(done) => return Ok(done),
                Err(trouble) => trouble,
            };
            collisions += 1;
            if trouble.kind != TroubleKind::Collision || collisions == COLLISIONS_MAX {
                return Err(trouble);
            }
        }
    }

    async fn limit(&mut self, limits: Limits) -> Result<(), Trouble> {
        let limited = self.session.limit(limits).await;
        limited.map_err(|error| self.trouble(&error))
    }

    /// Copies rows in a transaction that is begun and committed by name. Without, the commit would be the end of the
    /// copy's message, of which the driver doesn't tell how it went: it takes the rows' own success for it, which
    /// the server says before it commits. Neither costs a wait: the one goes ahead with the copy, the other with its end.
    async fn copy(&mut self, bytes: Bytes, rows: &Rows) -> Result<Done, Trouble> {
        let text = self.statements(&rows.layout).copy();
        let statement = self.session.prepared(&text).await;
        let statement = statement.map_err(|error| self.trouble(&error))?;
        let client = &self.session.client;
        let begin = client.batch_execute("BEGIN");
        let opened = future::try_join(begin, client.copy_in::<_, Bytes>(&statement)).await;
        let ((), sink) = opened.map_err(|error| {
            // The driver has sent more than the server answers to, and a transaction may be open.
            self.session.is_lost = true;
            Trouble::of(&error)
        })?;
        let copied = async {
            let mut sink = pin!(sink);
            sink.send(bytes).await?;
            sink.finish().await
        };
        // After a copy that failed it ends the transaction as well.
        let commit = self.session.client.batch_execute("COMMIT");
        let (copied, committed) = future::join(copied, commit).await;
        copied
            .and(committed)
            .map(|()| Done::Written)
            .map_err(|error| self.trouble(&error))
    }

    async fn run_once(&mut self, request: &Request, rows: &Rows) -> Result<Done, Trouble> {
        let statements = self.statements(&rows.layout);
        let text = statements.write(request.repeats);
        let types: Vec<u32> = rows
            .layout
            .shape
            .columns
            .iter()
            .map(|(place, form)| statements.parameter(*place, *form).1)
            .collect();
        let arrays = request.arrays(types.into_iter());
        let parameters: Vec<_> = arrays
            .iter()
            .map(|array| array as &(dyn ToSql + Sync))
            .collect();
        let written = async {
            let statement = self.session.prepared(&text).await?;
            self.session.client.execute(&statement, &parameters).await
        };
        let written = written.await.map_err(|error| self.trouble(&error))?;
        // Where rows have the database's keys, one that was there may be another record's.
        let may_be_others = self.config.mode == Mode::Insert
            && !matches!(self.config.key, RowKey::None | RowKey::Place);
        let count = u64::try_from(request.len()).unwrap_or(u64::MAX);
        if !may_be_others || rows.layout.shape.is_delete || written == count {
            return Ok(Done::Written);
        }
        self.refuse_others(&parameters, rows).await
    }

    /// Refuses the records whose key another row has, unless it is the same row.
    async fn refuse_others(
        &mut self,
        parameters: &[&(dyn ToSql + Sync)],
        rows: &Rows,
    ) -> Result<Done, Trouble> {
        let text = self.statements(&rows.layout).others();
        let found = async {
            let statement = self.session.prepared(&text).await?;
            self.session.client.query(&statement, parameters).await
        };
        let found = found.await.map_err(|error| self.trouble(&error))?;
        self.report(rows, &Outcome::Written);
        for row in found {
            let number = usize::try_from(row.get::<_, i64>(0)).unwrap_or(0);
            let place = number
                .checked_sub(1)
                .and_then(|number| rows.records.get(number));
            let reason = "another row has its key, and insert.mode=insert replaces none";
            if let Some(place) = place {
                self.work.report(*place, refused(reason.to_owned()));
            }
        }
        Ok(Done::Reported)
    }

    fn statements<'a>(&'a self, layout: &'a Layout) -> Statements<'a> {
        Statements {
            config: self.config,
            place: self.place,
            table: &self.plan.table,
            shape: &layout.shape,
        }
    }

    fn trouble(&mut self, error: &tokio_postgres::Error) -> Trouble {
        self.session.is_lost |= needs_new_connection(error);
        Trouble::of(error)
    }

    /// One outcome for all rows; those that follow each other in the batch are told as one.
    fn report(&mut self, rows: &Rows, outcome: &Outcome) {
        if *outcome != Outcome::Written {
            let places = rows.records.iter();
            return places.for_each(|place| self.work.report(*place, outcome.clone()));
        }
        for run in rows.records.chunk_by(|one, next| one + 1 == *next) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            if let Some(done) = self.work.done.get_mut(*first..=*last) {
                done.fill(true);
            }
            if let (Some(first), Some(last)) =
                (self.work.records.get(*first), self.work.records.get(*last))
            {
                self.work.outcomes.written_range(first.offset, last.offset);
            }
        }
    }
}

const fn refused(reason: String) -> Outcome {
    Outcome::Refused { reason }
}

const fn later(reason: String) -> Outcome {
    Outcome::Later {
        reason,
        after: None,
    }
}

/// How often a statement that collides is carried out in one put.
const COLLISIONS_MAX: u32 = 5;
