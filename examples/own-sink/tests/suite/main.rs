//! The sink keeps what every sink must.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test stops at the first failure"
)]

mod server;

use server::{PASSWORD, Server};
use sharegroup::sink::{OwnedRecord, Registry};
use sharegroup_testkit::sink_suite::{
    Arrived, Delivery, Promises, Recipe, SinkSuite, Target, TargetError, Trouble, WorkerCommand,
    run_worker_process,
};

impl Target for Server {
    fn promises(&self) -> Promises {
        Promises::new(Delivery::IdempotentById)
    }

    fn registry(&self) -> Registry {
        own_sink::registry()
    }

    async fn start(&mut self, _topic: &str) -> Result<(), TargetError> {
        self.clear();
        Ok(())
    }

    fn properties(&self) -> Vec<(String, String)> {
        let keys = [
            ("connector.class", "redis".to_owned()),
            ("redis.address", self.address.to_string()),
            ("redis.password", PASSWORD.to_owned()),
        ];
        keys.map(|(key, value)| (key.to_owned(), value)).to_vec()
    }

    fn good_record(&self, recipe: &Recipe) -> OwnedRecord {
        let value = format!("{} {}", recipe.number, "x".repeat(recipe.bytes));
        OwnedRecord {
            value: Some(value.into()),
            ..OwnedRecord::default()
        }
    }

    fn bad_record(&self, _: &Recipe) -> Result<OwnedRecord, TargetError> {
        // A record without a value.
        Ok(OwnedRecord::default())
    }

    async fn read_back(&mut self) -> Result<Vec<Arrived>, TargetError> {
        let arrived = self.values().into_iter().map(|value| {
            let text = String::from_utf8(value).map_err(TargetError::broken)?;
            let number = text.split(' ').next().unwrap_or_default();
            let number = number.parse().map_err(TargetError::broken)?;
            Ok(Arrived { number, times: 1 })
        });
        arrived.collect()
    }

    async fn trouble(&mut self, trouble: Trouble) -> Result<(), TargetError> {
        self.set_trouble(trouble);
        Ok(())
    }

    async fn mend(&mut self) -> Result<(), TargetError> {
        self.end_trouble();
        Ok(())
    }

    fn wrong_credentials(&self) -> Result<Vec<(String, String)>, TargetError> {
        Ok(vec![(
            "redis.password".to_owned(),
            "quite-wrong".to_owned(),
        )])
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned(), "quite-wrong".to_owned()]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sink_passes_the_suite() {
    let server = Server::start().await;
    let suite = SinkSuite::new(server)
        .worker_process(WorkerCommand::this_program("worker_process"))
        .records(20_000);
    let report = suite.run().await;
    report.verdict().unwrap();
    assert!(report.skipped().is_empty(), "{:?}", report.skipped());
}

/// The worker that the suite starts as a process of its own, and kills.
#[test]
fn worker_process() {
    run_worker_process(&own_sink::registry()).unwrap();
}
