//! The texts of the files.

use std::fmt::Write as _;

use sharegroup_sink::Connector;
use sharegroup_sink::config::{Importance, KeyDef};

/// What a sink's file begins with.
pub(super) struct Starter<'a> {
    sink: &'a dyn Connector,
    preset: &'static Preset,
}

/// What is known of a sink beside its keys.
struct Preset {
    sink: &'static str,
    /// Lines to be edited after that of the topics, each with an example.
    edits: &'static [(&'static str, &'static str)],
    /// Lines that make it work at once: why, and what they are.
    lines: &'static [(&'static str, &'static [(&'static str, &'static str)])],
}

const JSON: (&str, &[(&str, &str)]) = (
    "Values are JSON without a schema. Other converters: sharegroup list",
    &[
        (
            "value.converter",
            "org.apache.kafka.connect.json.JsonConverter",
        ),
        ("value.converter.schemas.enable", "false"),
    ],
);

const PRESETS: &[Preset] = &[
    Preset {
        sink: "postgres",
        edits: &[("connection.url", "postgresql://me@localhost:5432/shop")],
        lines: &[
            JSON,
            (
                "A row for each record, with the whole value in a column of type jsonb; the table has the topic's name and is \
                 made where it is missing. To write fields into columns of a table of your own, take both lines out.",
                &[("value.column", "value"), ("auto.create", "true")],
            ),
        ],
    },
    Preset {
        sink: "http",
        edits: &[("http.url", "http://localhost:8080/orders")],
        lines: &[JSON],
    },
    Preset {
        sink: "file",
        edits: &[("file", "/tmp/orders-${task}.txt")],
        lines: &[],
    },
];

/// A sink without anything special.
const PLAIN: Preset = Preset {
    sink: "",
    edits: &[],
    lines: &[],
};

impl<'a> Starter<'a> {
    pub(super) fn of(sink: &'a dyn Connector) -> Self {
        let preset = PRESETS.iter().find(|preset| preset.sink == sink.name());
        Self {
            sink,
            preset: preset.unwrap_or(&PLAIN),
        }
    }

    /// The keys of the lines to be edited, with examples.
    pub(super) fn edits(&self) -> Vec<(&'static str, &'static str)> {
        let topics = [("topics", "orders")];
        topics.iter().chain(self.preset.edits).copied().collect()
    }

    /// The connector's file.
    pub(super) fn connector(&self) -> String {
        let name = self.sink.name();
        let mut text = String::new();
        comment(
            &mut text,
            &format!(
                "A connector of the sink {name}, which {}.",
                self.sink.purpose()
            ),
        );
        comment(
            &mut text,
            &format!(
                "All keys of the sink: sharegroup describe sink {name}. Those of every connector: sharegroup describe connector {name}."
            ),
        );
        heading(&mut text, "To be edited");
        for (key, example) in self.edits() {
            let doc = self
                .def(key)
                .map_or("the topics that are read, separated by commas", |def| {
                    def.doc
                });
            comment(&mut text, &format!("{doc}. For example {example}"));
            line(&mut text, key, "");
        }
        heading(&mut text, "As it is");
        line(&mut text, "name", name);
        line(&mut text, "connector.class", name);
        comment(
            &mut text,
            "Tasks of this process. Each is a member of the share group; the same files on another machine add theirs.",
        );
        line(&mut text, "tasks.max", "1");
        comment(
            &mut text,
            &format!(
                "Share groups (KIP-932). The group is connect-{name}, unless share.group.id says otherwise; a new one begins at the first record."
            ),
        );
        line(&mut text, "consumer.override.group.protocol", "share");
        for (why, lines) in self.preset.lines {
            comment(&mut text, why);
            lines
                .iter()
                .for_each(|(key, value)| line(&mut text, key, value));
        }
        text.push_str(RARELY);
        comment(
            &mut text,
            "Records that the sink refuses go to a topic and the task goes on. Left out, it fails at the first of them.",
        );
        commented_out(&mut text, "errors.tolerance", "all");
        let dead = format!("{name}-dead");
        commented_out(&mut text, "errors.deadletterqueue.topic.name", &dead);
        for def in self.sink.keys() {
            if self.is_worth_a_line(def) {
                let allowed = def.kind.allowed();
                let allowed = allowed.map_or_else(String::new, |allowed| format!(" ({allowed})"));
                comment(&mut text, &format!("{}{allowed}", def.doc));
                commented_out(&mut text, def.name, def.default.unwrap_or_default());
            }
        }
        text
    }

    /// Whether a key is neither there already nor of no use to most.
    fn is_worth_a_line(&self, def: &KeyDef) -> bool {
        let mut preset = self.preset.lines.iter().flat_map(|(_, lines)| *lines);
        def.importance != Importance::Low
            && def.alias_of.is_none()
            && !self.edits().iter().any(|(key, _)| *key == def.name)
            && !preset.any(|(key, _)| *key == def.name)
    }

    fn def(&self, key: &str) -> Option<&'static KeyDef> {
        self.sink.keys().iter().find(|def| def.name == key)
    }
}

/// The worker's file.
pub(super) fn worker(bootstrap_server: &str) -> String {
    let mut text = String::new();
    comment(
        &mut text,
        "A worker: where Kafka is, and how this process behaves. All keys: sharegroup describe worker",
    );
    text.push('\n');
    line(&mut text, "bootstrap.servers", bootstrap_server);
    text.push_str(RARELY);
    comment(&mut text, "A cluster that is secured. Kafka's own keys.");
    commented_out(&mut text, "security.protocol", "SASL_SSL");
    commented_out(&mut text, "sasl.mechanism", "SCRAM-SHA-512");
    commented_out(
        &mut text,
        "sasl.jaas.config",
        "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"${env:KAFKA_USER}\" password=\"${env:KAFKA_PASSWORD}\";",
    );
    comment(
        &mut text,
        "Values from the environment, as ${env:NAME}, in this file and those of connectors: nothing secret needs to stand in them.",
    );
    commented_out(&mut text, "config.providers", "env");
    commented_out(
        &mut text,
        "config.providers.env.class",
        "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    );
    comment(&mut text, "Where metrics and health are served.");
    commented_out(&mut text, "listeners", "http://127.0.0.1:8083");
    comment(
        &mut text,
        "How long SIGTERM or Ctrl-C waits until everything is finished and the group is left.",
    );
    commented_out(&mut text, "task.shutdown.graceful.timeout.ms", "5000");
    text
}

/// Before what is commented out.
pub(super) const RARELY: &str =
    "\n# --- If need be; as shown they have their defaults, or an example ---\n";

fn heading(text: &mut String, what: &str) {
    // Writing to a string never fails.
    let _written = write!(text, "\n# --- {what} ---\n");
}

fn line(text: &mut String, key: &str, value: &str) {
    let _written = writeln!(text, "{key}={value}");
}

/// Without a blank, so that no sentence looks like it.
fn commented_out(text: &mut String, key: &str, value: &str) {
    let _written = writeln!(text, "#{key}={value}");
}

/// A paragraph in lines that fit on a screen, behind an empty line.
fn comment(text: &mut String, paragraph: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    let mut width = 0;
    for word in paragraph.split_whitespace() {
        let is_new = width == 0 || width + word.len() >= WIDTH_MAX;
        if is_new && width > 0 {
            text.push('\n');
        }
        text.push_str(if is_new { "# " } else { " " });
        width = if is_new { 2 } else { width + 1 } + word.len();
        text.push_str(word);
    }
    text.push('\n');
}

const WIDTH_MAX: usize = 110;
