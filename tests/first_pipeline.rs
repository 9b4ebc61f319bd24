//! docs/first-pipeline.md, command by command.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sharegroup_testkit::postgres::Postgres;
use support::{Folder, binary};
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// A part of the page that does something.
#[derive(Debug)]
enum Step {
    /// A command, and what the page says that it prints.
    Run {
        command: String,
        printed: Vec<String>,
    },
    /// A line of the connector's file to be edited.
    Edit { key: String, value: String },
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut fence = None;
    for line in page.lines() {
        match (fence, line.strip_prefix("```")) {
            (None, Some(language)) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (Some("console"), None) => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step::Run {
                    command: command.to_owned(),
                    printed: Vec::new(),
                }),
                (None, Some(Step::Run { printed, .. })) => printed.push(line.to_owned()),
                (None, _) => panic!("printed by no command: {line}"),
            },
            (Some("properties"), None) => {
                let (key, value) = line.split_once('=').unwrap();
                let (key, value) = (key.to_owned(), value.to_owned());
                steps.push(Step::Edit { key, value });
            }
            _ => {}
        }
    }
    steps
}

/// The places that the page names, and those that there are.
struct Stage {
    folder: Folder,
    places: Vec<(&'static str, String)>,
    broker: Option<Child>,
    runtime: tokio::runtime::Runtime,
    edits: usize,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(broker) = &mut self.broker {
            drop(broker.kill());
            drop(broker.wait());
        }
    }
}

impl Stage {
    fn real(&self, text: &str) -> String {
        let places = self.places.iter();
        places.fold(text.to_owned(), |text, (named, real)| {
            text.replace(named, real)
        })
    }

    fn named(&self, text: &str) -> String {
        let places = self.places.iter();
        places.fold(text.to_owned(), |text, (named, real)| {
            text.replace(real, named)
        })
    }

    fn play(&mut self, step: &Step) {
        match step {
            Step::Edit { key, value } => self.edit("postgres.properties", key, value),
            Step::Run { command, printed } => {
                let said = if command.ends_with('&') {
                    self.start_broker(command);
                    String::new()
                } else if command.starts_with("psql ") {
                    self.query(command)
                } else {
                    self.shell(command)
                };
                assert_alike(command, &self.named(&said), printed);
            }
        }
    }

    /// Puts a value into a line that has none.
    fn edit(&mut self, file: &str, key: &str, value: &str) {
        let file = self.folder.join(file);
        let text = fs::read_to_string(&file).unwrap();
        let line = format!("\n{key}=\n");
        assert_eq!(text.matches(&line).count(), 1, "{key}");
        let edited = text.replace(&line, &format!("\n{key}={}\n", self.real(value)));
        fs::write(&file, edited).unwrap();
        self.edits += 1;
    }

    /// In the background, on a free port.
    fn start_broker(&mut self, command: &str) {
        let arguments = command.trim_end_matches('&').split_whitespace().skip(1);
        let mut broker = Command::new(binary())
            .args(arguments)
            .args(["--port", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = broker.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let server = line.trim_end().strip_prefix("bootstrap.servers=").unwrap();
        self.places.push(("localhost:9092", server.to_owned()));
        self.broker = Some(broker);
    }

    fn shell(&self, command: &str) -> String {
        let programs = self.folder.join("bin");
        let path = std::env::var("PATH").unwrap();
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {}; }} 2>&1", self.real(command))])
            .current_dir(self.folder.join(""))
            .env("PATH", format!("{}:{path}", programs.display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command}: {said}");
        if command.contains(" init ") {
            self.make_it_this_machines();
        }
        said
    }

    /// Where Kafka is, and no port that another test may have.
    fn make_it_this_machines(&self) {
        let worker = self.folder.join("worker.properties");
        let text = fs::read_to_string(&worker).unwrap();
        let text = self.real(&text) + "listeners=http://127.0.0.1:0\n";
        fs::write(worker, text).unwrap();
    }

    /// `psql URL -Atc "STATEMENT"`, which isn't everywhere.
    fn query(&self, command: &str) -> String {
        let command = self.real(command);
        let (url, statement) = command
            .strip_prefix("psql ")
            .and_then(|rest| rest.split_once(" -Atc "))
            .unwrap();
        self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            let rows = client.simple_query(statement.trim_matches('"')).await;
            let lines = rows
                .unwrap()
                .into_iter()
                .filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => {
                        let cells = (0..row.len()).map(|cell| row.get(cell).unwrap_or_default());
                        Some(cells.collect::<Vec<_>>().join("|") + "\n")
                    }
                    _ => None,
                });
            lines.collect()
        })
    }
}

/// `...` on a line of its own stands for any lines, at the end of a line for the rest of it. Times, rates and versions
/// may be others.
#[track_caller]
fn assert_alike(command: &str, said: &str, printed: &[String]) {
    let mut lines = said.lines();
    let mut may_skip = false;
    for expected in printed {
        if expected == "..." {
            may_skip = true;
            continue;
        }
        let is_alike = |line: &str| match expected.strip_suffix("...") {
            Some(start) => settled(line).starts_with(settled(start).trim_end()),
            None => settled(line) == settled(expected),
        };
        let found = if may_skip {
            lines.any(is_alike)
        } else {
            lines.next().is_some_and(is_alike)
        };
        assert!(
            found,
            "`{expected}` isn't printed by {command}, but:\n{said}"
        );
        may_skip = false;
    }
    let rest: Vec<_> = lines.collect();
    assert!(
        may_skip || rest.is_empty(),
        "{command} also printed {rest:?}"
    );
}

/// A line without what differs from run to run.
fn settled(line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let is_number = |word: &str| {
        let word = word.trim_start_matches('(');
        word.starts_with(|c: char| c.is_ascii_digit())
    };
    let kept = words.iter().enumerate().map(|(index, word)| {
        let before = index.checked_sub(1).and_then(|index| words.get(index));
        let after = words.get(index + 1).unwrap_or(&"");
        let is_unit = ["ms", "s", "records/s),"].contains(after);
        let is_time = is_number(word) && word.ends_with('Z');
        if is_number(word) && (is_unit || is_time || before == Some(&"PostgreSQL")) {
            "N"
        } else if before.is_some() && ["ms", "s"].contains(word) {
            "unit"
        } else {
            word
        }
    });
    kept.collect::<Vec<_>>().join(" ")
}

#[test]
fn every_command_of_the_page_prints_what_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/first-pipeline.md");
    let steps = steps(&fs::read_to_string(page).unwrap());
    let server = Postgres::start(&[("fsync", "off")]).unwrap();
    let mut stage = Stage {
        folder: Folder::new("first-pipeline"),
        places: vec![("localhost:5432", format!("127.0.0.1:{}", server.port()))],
        broker: None,
        runtime: tokio::runtime::Runtime::new().unwrap(),
        edits: 0,
    };
    stage.runtime.block_on(async {
        let url = server.url("postgres");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("CREATE ROLE me LOGIN").await.unwrap();
        let database = "CREATE DATABASE shop OWNER me";
        client.batch_execute(database).await.unwrap();
    });
    let programs = stage.folder.join("bin");
    fs::create_dir(&programs).unwrap();
    symlink(
        fs::canonicalize(binary()).unwrap(),
        programs.join("sharegroup"),
    )
    .unwrap();
    for step in &steps {
        stage.play(step);
    }
    assert_eq!(stage.edits, 2);
    assert!(steps.len() >= 9, "{steps:?}");
}
