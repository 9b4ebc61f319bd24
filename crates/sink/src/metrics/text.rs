//! What a worker tells Prometheus, in its text format (version 0.0.4).
//!
//! Kafka Connect's metrics have the names that the JMX exporter gives them by its default rule; those of share
//! tasks are KIP-1302's. Not there, as the KIP has it: `partition-count`, `offset-commit-seq-no`,
//! `offset-commit-completion-*`; nor `offset-commit-skip-*`, and no rate: rates come from totals.
//! What Connect keeps over a window of time (maxima, averages) is over the task's whole life here.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::histogram::{BOUNDS, HistogramSnapshot};
use super::names::{Counts, OF_CONNECTORS, OF_WORKER, TIMES, TimesOfTask, of_tasks};
use crate::config::ConnectorConfig;
use crate::status::{Startups, TaskStatus, WorkerStatus};

/// What is shown of a worker.
pub(crate) struct Shown<'a> {
    pub(crate) status: &'a WorkerStatus,
    /// The settings of each connector.
    pub(crate) configs: &'a [Arc<ConnectorConfig>],
    pub(crate) connectors_started: u64,
    pub(crate) startups: &'a Startups,
    pub(crate) lags: &'a [Lag],
}

/// The lag of a connector's group on one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) connector: String,
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) records: i64,
}

/// All metrics of a worker.
pub(crate) fn show(shown: &Shown<'_>) -> String {
    let mut page = Page::default();
    show_tasks(&mut page, shown.status);
    show_states(&mut page, shown.status);
    show_infos(&mut page, shown.configs);
    show_worker(&mut page, shown);
    page.begin("share_group_lag", "gauge", LAG);
    for lag in shown.lags {
        let partition = lag.partition.to_string();
        let labels = [
            ("connector", lag.connector.as_str()),
            ("topic", &lag.topic),
            ("partition", &partition),
        ];
        page.sample("share_group_lag", &labels, lag.records);
    }
    page.0
}

const LAG: &str =
    "records of the connector's share group that nobody has settled, as the broker tells it";
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn show_tasks(page: &mut Page, status: &WorkerStatus) {
    for metric in of_tasks() {
        page.begin(metric.name, metric.kind, metric.help);
        for_each(status, |labels, task| {
            page.sample(metric.name, labels, (metric.value)(task));
        });
    }
    for TimesOfTask { name, help, times } in TIMES {
        page.begin(name, "histogram", help);
        for_each(status, |labels, task| {
            page.histogram(name, labels, times(task));
        });
    }
}

fn for_each(status: &WorkerStatus, mut show: impl FnMut(&[(&str, &str); 2], &TaskStatus)) {
    for connector in &status.connectors {
        for task in &connector.tasks {
            let index = task.index.to_string();
            show(&[("connector", &connector.name), ("task", &index)], task);
        }
    }
}

/// The state of each task and connector: 1 for the one that it is in.
fn show_states(page: &mut Page, status: &WorkerStatus) {
    let name = "kafka_connect_connector_task_metrics_status";
    page.begin(name, "gauge", "1 for the state that the task is in");
    for_each(status, |[connector, index], task| {
        let state = task.state.to_string().to_lowercase();
        page.sample(name, &[*connector, *index, ("status", &state)], 1);
    });
    let name = "kafka_connect_connector_metrics_status";
    page.begin(name, "gauge", "1 for the state that the connector is in");
    for connector in &status.connectors {
        let state = connector.state.to_string().to_lowercase();
        let labels = [("connector", connector.name.as_str()), ("status", &state)];
        page.sample(name, &labels, 1);
    }
}

/// What Connect's metrics tell as texts.
fn show_infos(page: &mut Page, configs: &[Arc<ConnectorConfig>]) {
    let name = "kafka_connect_connector_metrics_info";
    page.begin(
        name,
        "gauge",
        "always 1; what the connector is, in its labels",
    );
    for config in configs {
        let labels = [
            ("connector", config.name.as_str()),
            ("connector_class", config.connector().name()),
            ("connector_type", "sink"),
            ("connector_version", VERSION),
        ];
        page.sample(name, &labels, 1);
    }
    let name = "kafka_connect_connector_task_metrics_info";
    page.begin(
        name,
        "gauge",
        "always 1; what the connector's tasks are, in its labels",
    );
    for config in configs {
        let (sink, converters) = (config.connector().name(), &config.converters);
        for index in 0..config.tasks_max {
            let labels = [
                ("connector", config.name.as_str()),
                ("task", &index.to_string()),
                ("connector_class", sink),
                ("connector_type", "sink"),
                ("connector_version", VERSION),
                ("task_class", sink),
                ("task_version", VERSION),
                ("key_converter_class", &converters.key.class),
                ("key_converter_version", VERSION),
                ("value_converter_class", &converters.value.class),
                ("value_converter_version", VERSION),
                ("header_converter_class", &converters.header.class),
                ("header_converter_version", VERSION),
            ];
            page.sample(name, &labels, 1);
        }
    }
}

fn show_worker(page: &mut Page, shown: &Shown<'_>) {
    let (status, startups) = (shown.status, shown.startups);
    let counts = Counts {
        connectors: status.connectors.len() as u64,
        tasks: status.tasks().count() as u64,
        connectors_started: shown.connectors_started,
        starts: startups.attempts.value(),
        started: startups.successes.value(),
        failed_to_start: startups.failures.value(),
    };
    for metric in OF_WORKER {
        page.begin(metric.name, metric.kind, metric.help);
        page.sample(metric.name, &[], (metric.value)(&counts));
    }
    for metric in OF_CONNECTORS {
        page.begin(metric.name, metric.kind, metric.help);
        for connector in &status.connectors {
            let labels = [("connector", connector.name.as_str())];
            page.sample(metric.name, &labels, (metric.value)(connector));
        }
    }
}

/// A page in Prometheus' text format.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Into<Number>) {
        let value = value.into().0;
        self.line(format_args!("{name}{} {value}", Labels(labels, None)));
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], times: &HistogramSnapshot) {
        let mut seen = 0;
        let bounds = BOUNDS.iter().map(f64::to_string);
        for (count, bound) in times.buckets.iter().zip(bounds.chain(["+Inf".to_owned()])) {
            seen += count;
            let labels = Labels(labels, Some(&bound));
            self.line(format_args!("{name}_bucket{labels} {seen}"));
        }
        let labels = Labels(labels, None);
        self.line(format_args!(
            "{name}_sum{labels} {}",
            times.sum.as_secs_f64()
        ));
        self.line(format_args!("{name}_count{labels} {seen}"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // INVARIANT: writing to a string does not fail.
        let written = writeln!(self.0, "{line}");
        debug_assert!(written.is_ok());
    }
}

/// A sample's value.
struct Number(f64);

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self(value as f64)
    }
}

impl From<i32> for Number {
    fn from(value: i32) -> Self {
        Self(value.into())
    }
}

/// Labels, and the bound of a bucket.
struct Labels<'a>(&'a [(&'a str, &'a str)], Option<&'a str>);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = self.1.map(|bound| ("le", bound));
        let mut before = '{';
        for (name, value) in self.0.iter().copied().chain(bound) {
            write!(f, "{before}{name}=\"")?;
            for character in value.chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    other => f.write_char(other)?,
                }
            }
            f.write_char('"')?;
            before = ',';
        }
        if before == ',' {
            f.write_char('}')?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::status::{ConnectorStatus, TaskState};
    use crate::testing::connector;

    fn page(status: &WorkerStatus) -> String {
        let config = connector("tasks.max=2\n");
        show(&Shown {
            status,
            configs: &[Arc::new(config)],
            connectors_started: 1,
            startups: &Startups::default(),
            lags: &[Lag {
                connector: "out".to_owned(),
                topic: "orders".to_owned(),
                partition: 3,
                records: 7,
            }],
        })
    }

    fn status() -> WorkerStatus {
        let mut task = TaskStatus {
            index: 1,
            state: TaskState::Running,
            ..TaskStatus::default()
        };
        task.counters.acquired = 12;
        task.metrics.put_batch_time.buckets[2] = 4;
        let connector = ConnectorStatus {
            name: "a \"b\\\n".to_owned(),
            tasks: vec![task],
            ..ConnectorStatus::default()
        };
        WorkerStatus {
            connectors: vec![connector],
            ..WorkerStatus::default()
        }
    }

    #[test]
    fn numbers_stand_under_the_names_of_the_jmx_exporter() {
        let page = page(&status());
        let of = r#"{connector="a \"b\\\n",task="1""#;
        for line in [
            format!("kafka_connect_sink_task_metrics_sink_record_acquire_total{of}}} 12"),
            format!("kafka_connect_connector_task_metrics_status{of},status=\"running\"}} 1"),
            "kafka_connect_connect_worker_metrics_task_count 1".to_owned(),
            format!(
                "kafka_connect_sink_task_metrics_put_batch_seconds_bucket{of},le=\"0.005\"}} 0"
            ),
            format!("kafka_connect_sink_task_metrics_put_batch_seconds_bucket{of},le=\"+Inf\"}} 4"),
            "share_group_lag{connector=\"out\",topic=\"orders\",partition=\"3\"} 7".to_owned(),
        ] {
            assert!(
                page.lines().any(|is| is == line),
                "{line} is not in:\n{page}"
            );
        }
    }

    #[test]
    fn every_metric_is_declared_once_and_its_samples_stand_below() {
        let page = page(&status());
        let mut names = BTreeSet::new();
        let mut name = "";
        for line in page.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                name = declared.split(' ').next().unwrap();
                assert!(names.insert(name), "{name} is there twice");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(name), "{line} is not of {name}");
            }
        }
        assert!(names.len() > 60, "{}", names.len());
    }

    #[test]
    fn b_124_no_metric_claims_that_a_delivery_count_of_1_is_the_first_delivery() {
        let page = page(&status());
        let help = "sink_record_redelivery_total records acquired with a delivery count above 1; a count of 1 need not be the first delivery";
        assert!(page.contains(help), "{page}");
    }
}
