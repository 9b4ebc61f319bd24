//! What comes of the figures: ratios, a table, a plot.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::clients::{Contender, Maker};
use super::figures::{Figures, Spread};
use super::scenario::Scenario;
use super::{machine, plot};

/// One client in one scenario.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) scenario: Scenario,
    pub(super) contender: Contender,
    pub(super) rounds: Vec<Figures>,
}

impl Measured {
    pub(super) fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(&self.rounds, figure)
    }
}

#[derive(Debug)]
pub(super) struct Report {
    pub(super) quick: bool,
    pub(super) versions: Value,
    pub(super) missing: Vec<String>,
    pub(super) measured: Vec<Measured>,
    pub(super) failures: Vec<String>,
    /// Of the machine when it began.
    pub(super) load: f64,
}

/// Whose figures are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Ours,
    Java,
    /// The loop that reads and checks.
    Raw,
    /// Java, krafka and franz-go, in share groups.
    Peers,
}

impl Who {
    fn holds(self, contender: Contender) -> bool {
        match self {
            Self::Ours => contender.maker == Maker::Ours,
            Self::Java => contender.maker == Maker::Java && contender.mode != "plain",
            Self::Raw => contender.maker == Maker::Raw,
            Self::Peers => {
                ![Maker::Ours, Maker::Raw].contains(&contender.maker) && contender.mode != "plain"
            }
        }
    }
}

/// What is compared with what.
struct Ratio {
    name: &'static str,
    scenario: &'static str,
    figure: &'static str,
    /// In this mode only; else each maker's best.
    mode: Option<&'static str>,
    other: Who,
    /// Where the other is measured, if elsewhere.
    other_scenario: Option<&'static str>,
    best_is_greatest: bool,
}

const fn rate(name: &'static str, scenario: &'static str, other: Who) -> Ratio {
    Ratio {
        name,
        scenario,
        figure: "records_per_second",
        mode: None,
        other,
        other_scenario: None,
        best_is_greatest: true,
    }
}

const fn cost(
    name: &'static str,
    scenario: &'static str,
    figure: &'static str,
    other: Who,
) -> Ratio {
    Ratio {
        name,
        scenario,
        figure,
        mode: None,
        other,
        other_scenario: None,
        best_is_greatest: false,
    }
}

const RATIOS: [Ratio; 12] = [
    rate("rps_500_vs_best_peer", "poll-500", Who::Peers),
    rate("rps_500_vs_java", "poll-500", Who::Java),
    Ratio {
        mode: Some("commit"),
        ..rate("rps_500_commit_vs_best_peer", "poll-500", Who::Peers)
    },
    rate("rps_5000_vs_best_peer", "poll-5000", Who::Peers),
    cost("cpu_500_vs_best_peer", "poll-500", "cpu_us", Who::Peers),
    cost("cpu_5000_vs_best_peer", "poll-5000", "cpu_us", Who::Peers),
    Ratio {
        other_scenario: Some("replay-256-poll-5000"),
        ..cost("cpu_5000_vs_raw", "poll-5000", "cpu_us", Who::Raw)
    },
    rate("replay_256_vs_raw", "replay-256-poll-500", Who::Raw),
    cost("rss_vs_smallest_peer", "poll-500", "rss_mb", Who::Peers),
    cost("p50_vs_java", "latency-100", "p50_ms", Who::Java),
    cost("p99_vs_java", "latency-100", "p99_ms", Who::Java),
    cost("p99_vs_best_peer", "latency-100", "p99_ms", Who::Peers),
];

impl Report {
    fn best(&self, ratio: &Ratio, scenario: &str, who: Who) -> Option<f64> {
        let medians = self
            .measured
            .iter()
            .filter(|measured| {
                measured.scenario.name == scenario
                    && who.holds(measured.contender)
                    && ratio
                        .mode
                        .is_none_or(|mode| measured.contender.mode == mode)
            })
            .filter_map(|measured| Some(measured.spread(ratio.figure)?.median));
        if ratio.best_is_greatest {
            medians.max_by(f64::total_cmp)
        } else {
            medians.min_by(f64::total_cmp)
        }
    }

    /// `None` where it wasn't measured in this run.
    fn ratio(&self, ratio: &Ratio) -> Option<f64> {
        let other = ratio.other_scenario.unwrap_or(ratio.scenario);
        let ours = self.best(ratio, ratio.scenario, Who::Ours)?;
        Some(ours / self.best(ratio, other, ratio.other)?)
    }

    /// One a line.
    pub(super) fn say_ratios(&self) {
        for ratio in &RATIOS {
            let name = ratio.name;
            match self.ratio(ratio) {
                Some(ratio) => println!("{name} {ratio:.3}"),
                None => println!("{name} not measured"),
            }
        }
    }

    fn latest(&self) -> Value {
        let ratios: Map<String, Value> = RATIOS
            .iter()
            .map(|ratio| (ratio.name.to_owned(), json!(self.ratio(ratio))))
            .collect();
        json!({
            "ratios": ratios,
            "checksums_equal": self.checksums_equal(),
            "missing": self.absent(),
            "machine": machine::describe(),
            "versions": self.versions,
            "date": machine::date(),
        })
    }

    /// Whether all that was drained was what was written. A client with another checksum has failed.
    fn checksums_equal(&self) -> bool {
        let mut drained = self.measured.iter().map(|measured| &measured.scenario);
        let is_any = drained.any(|scenario| scenario.brokers > 0 && scenario.rate == 0);
        is_any
            && !self
                .failures
                .iter()
                .any(|failure| failure.contains("checksum"))
    }

    /// What could not be built, and what failed where: without it the best of the others may not be the best.
    fn absent(&self) -> Vec<&str> {
        let failed = self
            .failures
            .iter()
            .filter_map(|failure| failure.split(": ").next());
        let mut absent: Vec<&str> = self
            .missing
            .iter()
            .map(String::as_str)
            .chain(failed)
            .collect();
        absent.dedup();
        absent
    }

    fn figures(&self) -> Value {
        let measured: Vec<Value> = self
            .measured
            .iter()
            .map(|measured| {
                json!({
                    "scenario": measured.scenario.name,
                    "client": measured.contender.name,
                    "rounds": measured.rounds,
                })
            })
            .collect();
        json!({
            "load_at_start": self.load,
            "failures": self.failures,
            "measured": measured,
        })
    }

    fn markdown(&self, latest: &Value) -> String {
        let text = |key: &str| {
            latest
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let mut page = format!(
            "# Share consumers side by side\n\nWritten by `cargo xtask bench share{}` on {}. {}; load {:.1} at the start.\n\
             Versions: {}.\nMedians (least..greatest) of all rounds, the clients in turn.\n",
            if self.quick { " --quick" } else { "" },
            text("date"),
            text("machine"),
            self.load,
            self.versions
        );
        for scenario in self.scenarios() {
            let rows = self
                .measured
                .iter()
                .filter(|measured| measured.scenario.name == *scenario);
            let rows: Vec<&Measured> = rows.collect();
            let is_latency = rows.first().is_some_and(|row| row.scenario.rate > 0);
            let columns = if is_latency { LATENCY } else { DRAIN };
            let heads: Vec<_> = columns.iter().map(|column| column.head).collect();
            page.push_str(&format!(
                "\n## {scenario}\n\n| client | {} |\n|---|{}\n",
                heads.join(" | "),
                "---|".repeat(columns.len())
            ));
            for row in rows {
                let cells: Vec<_> = columns.iter().map(|column| column.cell(row)).collect();
                page.push_str(&format!(
                    "| {} | {} |\n",
                    row.contender.name,
                    cells.join(" | ")
                ));
            }
        }
        if !self.missing.is_empty() || !self.failures.is_empty() {
            let problems = self
                .missing
                .iter()
                .map(|name| format!("- {name} could not be built\n"));
            let failed = self.failures.iter().map(|failure| format!("- {failure}\n"));
            page.push_str("\n## Missing\n\n");
            page.extend(problems.chain(failed));
        }
        page
    }

    fn scenarios(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .measured
            .iter()
            .map(|measured| measured.scenario.name.as_str())
            .collect();
        names.dedup();
        names
    }
}

/// A column of the table.
struct Column {
    head: &'static str,
    figure: &'static str,
    divisor: f64,
    decimals: usize,
}

const fn column(head: &'static str, figure: &'static str, divisor: f64, decimals: usize) -> Column {
    Column {
        head,
        figure,
        divisor,
        decimals,
    }
}

const DRAIN: &[Column] = &[
    column("1,000 records/s", "records_per_second", 1000.0, 0),
    column("MB/s", "mb_per_second", 1.0, 0),
    column("CPU us per record", "cpu_us", 1.0, 2),
    column("peak MB", "rss_mb", 1.0, 1),
    column("ShareFetch per 1,000", "fetches", 1.0, 2),
    column("ShareAcknowledge per 1,000", "acknowledges", 1.0, 2),
    column("broker's CPU us", "broker_cpu_us", 1.0, 2),
    column("first record after s", "start_s", 1.0, 2),
    column("delivered again", "again", 1.0, 0),
];

const LATENCY: &[Column] = &[
    column("p50 ms", "p50_ms", 1.0, 2),
    column("p99 ms", "p99_ms", 1.0, 2),
    column("p99.9 ms", "p999_ms", 1.0, 2),
    column("requests/s", "requests", 1.0, 0),
    column("CPU ms/s, with producer", "cpu_ms_per_second", 1.0, 1),
    column("broker's CPU ms/s", "broker_cpu_ms_per_second", 1.0, 0),
    column("peak MB", "rss_mb", 1.0, 1),
];

impl Column {
    fn cell(&self, row: &Measured) -> String {
        let Some(spread) = row.spread(self.figure) else {
            return "-".to_owned();
        };
        let of = |value: f64| format!("{:.*}", self.decimals, value / self.divisor);
        if of(spread.min) == of(spread.max) {
            return of(spread.median);
        }
        format!(
            "{} ({}..{})",
            of(spread.median),
            of(spread.min),
            of(spread.max)
        )
    }
}

/// Writes `latest.json`, and `share.json`, `.md` and `.svg` (`share-quick` with `--quick`).
pub(super) fn write(report: &Report, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let name = if report.quick { "share-quick" } else { "share" };
    let latest = report.latest();
    let pretty = |value: &Value| serde_json::to_string_pretty(value).map(|text| text + "\n");
    fs::write(folder.join("latest.json"), pretty(&latest)?)?;
    fs::write(
        folder.join(format!("{name}.json")),
        pretty(&report.figures())?,
    )?;
    let plots: Vec<plot::Panel> = ["poll-500", "poll-5000", "replay-256-poll-500"]
        .iter()
        .flat_map(|scenario| {
            [
                panel(
                    report,
                    scenario,
                    "records/s, in thousands",
                    "records_per_second",
                    1000.0,
                ),
                panel(report, scenario, "CPU us per record", "cpu_us", 1.0),
            ]
        })
        .filter(|panel| !panel.bars.is_empty())
        .collect();
    let mut page = report.markdown(&latest);
    if !plots.is_empty() {
        fs::write(folder.join(format!("{name}.svg")), plot::draw(&plots))?;
        page.push_str(&format!(
            "\n![Bars of medians, with the least and the greatest]({name}.svg)\n"
        ));
    }
    fs::write(folder.join(format!("{name}.md")), page)?;
    Ok(())
}

fn panel(report: &Report, scenario: &str, what: &str, figure: &str, divisor: f64) -> plot::Panel {
    let bars = report
        .measured
        .iter()
        .filter(|measured| measured.scenario.name == scenario)
        .filter_map(|measured| {
            let spread = measured.spread(figure)?;
            Some(plot::Bar {
                name: measured.contender.name,
                is_ours: measured.contender.maker == Maker::Ours,
                median: spread.median / divisor,
                min: spread.min / divisor,
                max: spread.max / divisor,
            })
        });
    plot::Panel {
        title: format!("{scenario}: {what}"),
        bars: bars.collect(),
    }
}
