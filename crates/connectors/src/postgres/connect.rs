//! Connections to the database.

use std::collections::HashMap;
use std::time::Duration;

use sharegroup_sink::TaskError;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Error, Statement};

use super::config::PostgresConfig;
use super::outcome::{Trouble, TroubleKind};
use super::timeouts::{Held, Limits};
use super::url::{Target, Tls};

/// One connection, with what was prepared on it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    connection: JoinHandle<()>,
    /// By their text.
    statements: HashMap<String, Statement>,
    /// Of each statement.
    limits: Limits,
    /// Whether something was said on it after which another connection may fare better.
    pub(super) is_lost: bool,
}

impl Session {
    /// Whether statements may go over it.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_lost && !self.client.is_closed()
    }

    /// Connects and sets what all statements rely on.
    ///
    /// # Errors
    /// What keeps it from that, with the host.
    pub(super) async fn open(config: &PostgresConfig, held: Held) -> Result<Self, Trouble> {
        let place = config.target.place();
        let fail = |error: &Error| {
            let Trouble { kind, reason, .. } = Trouble::of(error);
            let kind = match kind {
                TroubleKind::Broken => kind,
                _ => TroubleKind::Later,
            };
            let advice = advice(error, &config.target);
            Trouble::new(
                kind,
                format!("no connection to PostgreSQL at {place}: {reason}{advice}"),
            )
        };
        let limits = config.timeouts.limits(held);
        let settings = driver_settings(config, limits);
        let opened = async {
            let (client, connection) = connect(&settings, &config.target).await?;
            let session = Self {
                client,
                connection,
                statements: HashMap::new(),
                limits,
                is_lost: false,
            };
            session
                .client
                .batch_execute(&prelude(config, limits))
                .await?;
            Ok(session)
        };
        let hosts = u32::try_from(config.target.hosts.len()).unwrap_or(1);
        let opened = timeout(config.timeouts.connect * hosts, opened).await;
        let no_answer = |_| {
            let reason = format!("no answer from PostgreSQL at {place}");
            Trouble::new(TroubleKind::Later, reason)
        };
        opened.map_err(no_answer)?.map_err(|error| fail(&error))
    }

    /// Limits the statements that follow.
    pub(super) async fn limit(&mut self, limits: Limits) -> Result<(), Error> {
        if !limits.are_met_by(self.limits) {
            self.client.batch_execute(&limits.setting()).await?;
            self.limits = limits;
        }
        Ok(())
    }

    /// Longest wait for the answer to a statement.
    pub(super) fn deadline(&self) -> Duration {
        self.limits.deadline()
    }

    /// The statement of a text; prepared once.
    pub(super) async fn prepared(&mut self, text: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(text) {
            return Ok(statement.clone());
        }
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        let statement = self.client.prepare(text).await?;
        self.statements.insert(text.to_owned(), statement.clone());
        Ok(statement)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A statement that nobody waits for any more must not hold the connection.
        self.connection.abort();
    }
}

fn driver_settings(settings: &PostgresConfig, limits: Limits) -> Config {
    let target = &settings.target;
    let mut config = Config::new();
    for (host, port) in &target.hosts {
        config.host(host).port(*port);
    }
    if let Some(user) = &target.user {
        config.user(user);
    }
    if let Some(password) = &target.password {
        config.password(password);
    }
    if let Some(database) = &target.database {
        config.dbname(database);
    }
    if let Some(options) = &target.options {
        config.options(options);
    }
    if target.primary_only {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    config
        .application_name(target.application.as_deref().unwrap_or("sharegroup"))
        .connect_timeout(settings.timeouts.connect)
        .tcp_user_timeout(limits.deadline())
        .keepalives_idle(KEEPALIVE)
        .ssl_mode(match target.tls {
            Tls::Off => SslMode::Disable,
            Tls::VerifyAuthority | Tls::VerifyFull => SslMode::Require,
        });
    config
}

#[cfg(feature = "tls")]
async fn connect(config: &Config, target: &Target) -> Result<(Client, JoinHandle<()>), Error> {
    let (client, connection) = config.connect(super::tls::MakeTls::new(target)).await?;
    Ok((client, tokio::spawn(watch(connection))))
}

#[cfg(not(feature = "tls"))]
async fn connect(config: &Config, _: &Target) -> Result<(Client, JoinHandle<()>), Error> {
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    Ok((client, tokio::spawn(watch(connection))))
}

/// Carries a connection until it ends; whoever waits for an answer then is told, too.
async fn watch(connection: impl Future<Output = Result<(), Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "A connection to PostgreSQL ended.");
    }
}

fn prelude(config: &PostgresConfig, limits: Limits) -> String {
    let mut text = format!(
        "{}; SET client_min_messages = warning; \
         SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'iso_8601'",
        limits.setting()
    );
    if let Some(path) = &config.target.search_path {
        let schemas = path
            .split(',')
            .map(|schema| super::identifier::quoted(schema.trim()));
        let schemas: Vec<_> = schemas.collect();
        text = format!("{text}; SET search_path = {}", schemas.join(", "));
    }
    text
}

/// What helps where the reason alone doesn't say it.
fn advice(error: &Error, target: &Target) -> &'static str {
    let code = error.code().map_or("", |code| code.code());
    match (code, target.tls) {
        ("28000", Tls::Off) => {
            "; where the server takes TLS only, add sslmode=verify-full to connection.url"
        }
        _ => "",
    }
}

/// What becomes of something within a time; nobody knows where there is no answer.
pub(super) async fn within<T, E: From<Trouble>>(
    deadline: Duration,
    done: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let no_answer = || Trouble::new(TroubleKind::Unknown, "PostgreSQL gives no answer");
    timeout(deadline, done)
        .await
        .unwrap_or_else(|_| Err(no_answer().into()))
}

/// Starting fails where a put would wait.
impl From<Trouble> for TaskError {
    fn from(trouble: Trouble) -> Self {
        Self::new(trouble.reason)
    }
}

const KEEPALIVE: Duration = Duration::from_secs(60);
/// Statements that are kept prepared on a connection.
const STATEMENTS_MAX: usize = 256;
