//! The conformance suite of sinks.
//!
//! Given a way to start a target, to break it and to read back what arrived, [`SinkSuite`] proves that a
//! sink keeps what the runtime and its users rely on. What the suite has to know stands in one trait, [`Target`];
//! it needs nothing of a sink but its [`Connector`](sharegroup_sink::Connector), so that sinks of anybody
//! can be tried.
//!
//! | check | what it proves |
//! | --- | --- |
//! | `written_before_accepted` | what counts as written once `put` and `flush` have returned is in the destination |
//! | `bad_record_is_named` | a put with bad records says of each record what became of it |
//! | `redelivered` | the same records again, interleaved with others, and by another task, leave what is promised |
//! | `reordered` | older records after newer ones leave what is promised ([`Delivery`]) |
//! | `put_is_cancelled` | a put may be dropped at any of its awaits |
//! | `records_are_let_go` | the memory of records is given back once they are written |
//! | `put_while_down`, `_refusing`, `_slow`, `_silent`, `_full`, `put_after_restart` | a target in trouble refuses no record, nothing counts as written that isn't, and afterwards the task goes on |
//! | `metrics` | a worker's metrics count every record |
//! | `bad_record_stands_alone` | with `errors.tolerance=all` each gets a dead letter, and all others are written |
//! | `bad_record_fails_the_task` | with `errors.tolerance=none` the task fails, naming it |
//! | `down_at_start`, `down_in_the_middle`, `refusing_connections`, `slow`, `silent`, `full`, `restarted` | a worker gives up no record because of the target |
//! | `wrong_credentials` | nothing is settled with them, and all is written with the right ones |
//! | `several_tasks` | tasks write beside each other, each with several instances where the sink is concurrent |
//! | `shutdown_in_put`, `shutdown_while_silent` | a worker stops within its budget in the middle of a put, and the next one writes everything |
//! | `killed_worker` | a worker that is killed (SIGKILL) among 100,000 records loses none |
//! | `memory_is_bounded` | a worker's memory doesn't grow with what goes through it |
//! | `secrets` | no secret is in an error, an outcome, a status, a metric or a line of the log |
//!
//! The first group drives the sink's task by itself, the second runs whole workers, on an embedded broker or on
//! [a cluster of yours](SinkSuite::on); `killed_worker` and `memory_is_bounded` need workers as
//! [processes of their own](SinkSuite::worker_process).
//!
//! One line is printed for each check. What a target can't play is skipped, with the reason; a promise that
//! isn't kept says what was promised, what was seen, and of which records:
//!
//! ```text
//! ok       written_before_accepted  0.1 s
//! skipped  put_while_refusing: a file has no connections
//! FAILED   redelivered  0.1 s
//!   promised: each record is in the destination once (idempotent)
//!   seen:     2: records are there more than once
//!   records:  4, 17
//! 23 ok, 1 failed, 1 skipped  21.4 s
//! ```
//!
//! # A whole example
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//!
//! use sharegroup_sink::{
//!     Connector, ConnectorConfig, DynSinkTask, OutcomeSender, OwnedRecord, PutError,
//!     Registry, SinkBatch, SinkTask, TaskContext, TaskError,
//! };
//! use sharegroup_testkit::sink_suite::{
//!     Arrived, Delivery, Promises, Recipe, SinkSuite, Target, TargetError,
//! };
//!
//! /// A table in memory, by topic and offset: the sink, its task, and the target.
//! #[derive(Clone, Default)]
//! struct Table(Arc<Mutex<BTreeMap<(String, i64), String>>>);
//!
//! impl SinkTask for Table {
//!     async fn put(&mut self, batch: SinkBatch, outcomes: &OutcomeSender) -> Result<(), PutError> {
//!         let mut rows = self.0.lock().map_err(|_| PutError::broken("the table is gone"))?;
//!         for record in batch.records() {
//!             match record.value.map(|value| String::from_utf8(value.to_vec())) {
//!                 Some(Ok(text)) => {
//!                     rows.insert((record.topic.to_string(), record.offset), text);
//!                 }
//!                 _ => outcomes.refused(record.offset, "the value is no text"),
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! impl Connector for Table {
//!     fn name(&self) -> &'static str {
//!         "table"
//!     }
//!
//!     fn task(
//!         &self,
//!         _: &ConnectorConfig,
//!         _: &TaskContext,
//!     ) -> Result<Box<dyn DynSinkTask>, TaskError> {
//!         Ok(Box::new(self.clone()))
//!     }
//! }
//!
//! impl Target for Table {
//!     fn promises(&self) -> Promises {
//!         Promises::new(Delivery::IdempotentById)
//!     }
//!
//!     fn registry(&self) -> Registry {
//!         Registry::new().with(self.clone())
//!     }
//!
//!     async fn start(&mut self, _topic: &str) -> Result<(), TargetError> {
//!         self.0.lock().map_err(TargetError::broken)?.clear();
//!         Ok(())
//!     }
//!
//!     fn properties(&self) -> Vec<(String, String)> {
//!         vec![("connector.class".into(), "table".into())]
//!     }
//!
//!     fn good_record(&self, recipe: &Recipe) -> OwnedRecord {
//!         OwnedRecord {
//!             value: Some(format!("{:01$}", recipe.number, recipe.bytes).into()),
//!             ..OwnedRecord::default()
//!         }
//!     }
//!
//!     fn bad_record(&self, _: &Recipe) -> Result<OwnedRecord, TargetError> {
//!         Ok(OwnedRecord {
//!             value: Some(vec![0xff].into()),
//!             ..OwnedRecord::default()
//!         })
//!     }
//!
//!     async fn read_back(&mut self) -> Result<Vec<Arrived>, TargetError> {
//!         let rows = self.0.lock().map_err(TargetError::broken)?;
//!         let arrived = rows.values().map(|text| {
//!             let number = text.parse().map_err(TargetError::broken)?;
//!             Ok(Arrived { number, times: 1 })
//!         });
//!         arrived.collect()
//!     }
//! }
//!
//! // In a test: #[tokio::test(flavor = "multi_thread")]
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # let verdict = runtime.block_on(async {
//! let suite = SinkSuite::new(Table::default());
//! # let suite = suite.only("written_before_accepted").only("bad_record_is_named");
//! # let suite = suite.only("redelivered").only("reordered").only("bad_record_stands_alone");
//! suite.run().await.verdict()
//! # });
//! # verdict.unwrap();
//! ```

mod driven;
mod heard;
mod judge;
mod process;
mod report;
mod scene;
mod suite;
mod target;
mod task_checks;
mod worker_checks;

pub use self::process::{WorkerCommand, run_worker_process};
pub use self::report::{Broken, CheckReport, PromisesBroken, Report, Verdict};
pub use self::suite::SinkSuite;
pub use self::target::{
    Arrived, Delivery, Promises, Recipe, Refusals, SLOW, Target, TargetError, Trouble,
};
