//! A sink of one's own: writes records into Redis, or whatever speaks its protocol.
//!
//! ```properties
//! connector.class=redis
//! topics=orders
//! redis.address=localhost:6379
//! ```
//!
//! Each record is `SET key value`, where the key is the record's place: `orders:<topic id>:<partition>:<offset>`. So
//! what is delivered twice is written twice to the same effect. The topic's id is part of it, since a topic that is
//! deleted and made again counts its offsets from 0.
//!
//! `docs/write-a-sink.md` walks through it.

mod connection;
mod task;

use sharegroup::sink::config::{KeyDef, ValueKind};
use sharegroup::sink::{
    CheckFuture, Checked, ConfigProblem, Connector, ConnectorConfig, DynSinkTask, Registry,
    TaskContext, TaskError,
};

use self::connection::{Connection, Settings};
use self::task::RedisTask;

/// The sink `redis`.
#[derive(Clone, Copy, Debug)]
pub struct RedisConnector;

/// A registry with this sink.
#[must_use]
pub fn registry() -> Registry {
    Registry::new().with(RedisConnector)
}

const ADDRESS: KeyDef = KeyDef::required(
    "redis.address",
    ValueKind::NonBlank,
    "host:port of the server",
);
// A password is never shown: not in errors, not in the log.
const PASSWORD: KeyDef = KeyDef::unset(
    "redis.password",
    ValueKind::Password,
    "password of the server",
);

impl Connector for RedisConnector {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn purpose(&self) -> &'static str {
        "writes records into Redis, each under its place in Kafka"
    }

    fn keys(&self) -> &'static [KeyDef] {
        &[ADDRESS, PASSWORD]
    }

    fn validate(&self, config: &ConnectorConfig) -> Vec<ConfigProblem> {
        let address = config.own(ADDRESS.name).unwrap_or_default();
        let port = address
            .rsplit_once(':')
            .map(|(_, port)| port.parse::<u16>());
        if matches!(port, Some(Ok(_))) {
            return Vec::new();
        }
        let problem = config.problem(ADDRESS.name, "has no port");
        vec![problem.advice("write host:port, such as localhost:6379")]
    }

    fn check<'a>(&'a self, config: &'a ConnectorConfig, _: &'a [String]) -> CheckFuture<'a> {
        Box::pin(async {
            let settings = Settings::of(config);
            match Connection::open(&settings).await {
                Ok(_) => {
                    let mut checked = Checked::default();
                    checked.note(format!(
                        "the server at {} lets this client in",
                        settings.address
                    ));
                    checked
                }
                Err(reason) => Checked::failed(config.problem(ADDRESS.name, reason)),
            }
        })
    }

    fn task(
        &self,
        config: &ConnectorConfig,
        _: &TaskContext,
    ) -> Result<Box<dyn DynSinkTask>, TaskError> {
        Ok(Box::new(RedisTask::new(Settings::of(config))))
    }
}

impl Settings {
    fn of(config: &ConnectorConfig) -> Self {
        Self {
            address: config.own(ADDRESS.name).unwrap_or_default().to_owned(),
            password: config.own(PASSWORD.name).map(str::to_owned),
        }
    }
}
