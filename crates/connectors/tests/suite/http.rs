//! `http`, to a server that is a process of its own.

use std::fs;
use std::path::PathBuf;

use sharegroup_connectors::registry;
use sharegroup_sink::{OwnedRecord, Registry};
use sharegroup_testkit::sink_suite::{
    Arrived, Delivery, Promises, Recipe, Report, SLOW, SinkSuite, Target, TargetError, Trouble,
    WorkerCommand,
};

use crate::web::{URL_TOKEN, WebServer, kept};

/// A version of HTTP, and how requests authenticate.
#[derive(Clone, Copy)]
struct Dialect {
    version: &'static str,
    authorization: &'static str,
    right: &'static [(&'static str, &'static str)],
    wrong: (&'static str, &'static str),
    secrets: &'static [&'static str],
}

const HTTP1_BASIC: Dialect = Dialect {
    version: "1.1",
    authorization: "Basic dXNlcjpwYXNzLTRmMWQ5OWUy",
    right: &[
        ("auth.type", "basic"),
        ("connection.user", "user"),
        ("connection.password", "pass-4f1d99e2"),
    ],
    wrong: ("connection.password", "wrong-8ab3c0d7"),
    secrets: &[
        "pass-4f1d99e2",
        "wrong-8ab3c0d7",
        "dXNlcjpwYXNzLTRmMWQ5OWUy",
        URL_TOKEN,
    ],
};

const HTTP2_BEARER: Dialect = Dialect {
    version: "2",
    authorization: "Bearer token-1f60aa53",
    right: &[("auth.type", "bearer"), ("bearer.token", "token-1f60aa53")],
    wrong: ("bearer.token", "wrong-8ab3c0d7"),
    secrets: &["token-1f60aa53", "wrong-8ab3c0d7", URL_TOKEN],
};

/// A path for each check.
struct Web {
    dialect: Dialect,
    folder: PathBuf,
    topic: String,
    /// None while it is down.
    server: Option<WebServer>,
    port: u16,
}

impl Web {
    fn new(name: &str, dialect: Dialect) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self {
            dialect,
            folder,
            topic: String::new(),
            server: None,
            port: 0,
        }
    }

    /// The server, started where it is down.
    fn server(&mut self) -> Result<&mut WebServer, TargetError> {
        if self.server.is_none() {
            let authorization = Some(self.dialect.authorization);
            let server = WebServer::start(&self.folder, self.port, authorization)?;
            self.port = server.port();
            self.server = Some(server);
        }
        self.server
            .as_mut()
            .ok_or_else(|| TargetError::broken("no server"))
    }

    /// Sends its process a signal, if there is one.
    fn signal(&self, name: &str) -> Result<(), TargetError> {
        if let Some(server) = &self.server {
            server.signal(name)?;
        }
        Ok(())
    }

    fn tell(&mut self, command: &str) -> Result<(), TargetError> {
        self.server()?.tell(command)?;
        Ok(())
    }
}

impl Target for Web {
    fn promises(&self) -> Promises {
        // The server keeps one record for each idempotency key.
        Promises::new(Delivery::IdempotentById)
    }

    fn registry(&self) -> Registry {
        registry()
    }

    async fn start(&mut self, topic: &str) -> Result<(), TargetError> {
        self.topic = topic.to_owned();
        self.mend().await
    }

    fn properties(&self) -> Vec<(String, String)> {
        let (topic, port) = (&self.topic, self.port);
        let url = format!("http://127.0.0.1:{port}/{topic}?token={URL_TOKEN}");
        let keys = [
            ("connector.class", "http"),
            ("http.url", &url),
            ("http.version", self.dialect.version),
            (
                "value.converter",
                "org.apache.kafka.connect.storage.StringConverter",
            ),
            ("response.log", "all"),
        ];
        let keys = keys.iter().chain(self.dialect.right);
        keys.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn good_record(&self, recipe: &Recipe) -> OwnedRecord {
        let fill = "x".repeat(recipe.bytes);
        OwnedRecord {
            value: Some(format!("{};{fill}", recipe.number).into()),
            ..OwnedRecord::default()
        }
    }

    fn bad_record(&self, _: &Recipe) -> Result<OwnedRecord, TargetError> {
        Ok(OwnedRecord {
            value: Some("bad".into()),
            ..OwnedRecord::default()
        })
    }

    async fn read_back(&mut self) -> Result<Vec<Arrived>, TargetError> {
        let found = kept(&self.folder, &self.topic)?.into_iter();
        Ok(found
            .map(|(number, times)| Arrived { number, times })
            .collect())
    }

    async fn trouble(&mut self, trouble: Trouble) -> Result<(), TargetError> {
        match trouble {
            Trouble::Down => self.server = None,
            Trouble::Refusing => self.tell("door closed")?,
            Trouble::Slow => self.tell(&format!("delay {}", SLOW.as_millis()))?,
            Trouble::Full => self.tell("full")?,
            Trouble::Silent => self.signal("STOP")?,
            Trouble::Restarted => {
                self.server = None;
                self.server()?;
            }
            _ => return Err(TargetError::cant_play("nobody knows how")),
        }
        Ok(())
    }

    async fn mend(&mut self) -> Result<(), TargetError> {
        self.signal("CONT")?;
        self.tell("well")?;
        self.tell("door open")
    }

    fn wrong_credentials(&self) -> Result<Vec<(String, String)>, TargetError> {
        let (key, value) = self.dialect.wrong;
        Ok(vec![(key.to_owned(), value.to_owned())])
    }

    fn secrets(&self) -> Vec<String> {
        self.dialect
            .secrets
            .iter()
            .map(|&secret| secret.to_owned())
            .collect()
    }

    async fn stop(&mut self) {
        self.server = None;
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn suite(name: &str, dialect: Dialect) -> SinkSuite<Web> {
    SinkSuite::new(Web::new(name, dialect))
        .worker_process(WorkerCommand::this_program("worker_process"))
}

/// Every check has passed.
fn passed(report: &Report) {
    report.verdict().unwrap();
    assert_eq!(report.skipped(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_keeps_the_promises_of_a_sink() {
    passed(&suite("http1-suite", HTTP1_BASIC).run().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_keeps_the_promises_of_a_sink() {
    passed(&suite("http2-suite", HTTP2_BEARER).run().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_keeps_the_promises_of_a_sink_on_a_real_broker() {
    let Some(kafka) = super::kafka().await else {
        return;
    };
    let web = Web::new("http-suite-kafka", HTTP1_BASIC);
    let suite =
        super::suite_on(&kafka, web).worker_process(WorkerCommand::this_program("worker_process"));
    passed(&suite.run().await);
}
