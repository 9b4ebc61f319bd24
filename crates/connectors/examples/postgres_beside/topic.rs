//! The records, and the rows that they are.

use sharegroup_consumer::ClientConfig;
use sharegroup_consumer::admin::Admin;
use sharegroup_consumer::producer::{Producer, ProducerConfig, ProducerRecord};

use super::AnyError;

pub(super) const TOPIC: &str = "rows";
/// The first row's moment, in milliseconds.
pub(super) const START_MS: i64 = 1_700_000_000_000;

/// One row of the table.
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) amount: f64,
    /// In milliseconds since 1970.
    pub(super) at: i64,
}

impl Row {
    pub(super) fn new(id: i64) -> Self {
        Self {
            id,
            name: format!("customer {id}"),
            amount: id as f64 / 4.0,
            at: START_MS + id,
        }
    }
}

/// What the server makes of the same rows.
pub(super) const EXPECTED: &str = "SELECT id, 'customer ' || id AS name, id / 4.0::float8 AS amount, \
     timestamp '2023-11-14 22:13:20' + id * interval '1 ms' AS at";

const KEY_SCHEMA: &str = r#"{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"optional":false}"#;
const SCHEMA: &str = r#"{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"},{"type":"string","optional":false,"field":"name"},{"type":"double","optional":false,"field":"amount"},{"type":"int64","optional":false,"name":"org.apache.kafka.connect.data.Timestamp","version":1,"field":"at"}],"optional":false}"#;

/// Makes the topic and fills it.
pub(super) async fn fill(servers: &str, records: i64) -> Result<(), AnyError> {
    let client = ClientConfig::new(servers)?;
    Admin::new(client.clone())
        .create_topic(TOPIC, PARTITIONS, 1, &[])
        .await?;
    let producer = Producer::new(ProducerConfig::new(client));
    for id in 0..records {
        let Row {
            name, amount, at, ..
        } = Row::new(id);
        let key = format!(r#"{{"schema":{KEY_SCHEMA},"payload":{{"id":{id}}}}}"#);
        let value = format!(
            r#"{{"schema":{SCHEMA},"payload":{{"id":{id},"name":"{name}","amount":{amount:?},"at":{at}}}}}"#
        );
        let partition = i32::try_from(id % i64::from(PARTITIONS))?;
        let record = ProducerRecord::new(TOPIC).partition(partition);
        drop(producer.send(record.key(key).value(value)).await?);
    }
    producer.flush().await?;
    Ok(())
}

/// A record is in the partition that its id gives as the remainder.
pub(super) const PARTITIONS: i32 = 4;
