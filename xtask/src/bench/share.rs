//! The run: every client in turn, in every scenario, for some rounds.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sharegroup_launcher::{DEFAULT_VERSION, Tools};

use super::ShareArgs;
use super::broker::Cluster;
use super::clients::{CONTENDERS, Clients, Contender, Maker, RAW};
use super::figures::Figures;
use super::report::{Measured, Report};
use super::scenario::{self, Scenario, Shape};
use super::{client, machine, report};
use crate::run::Context;

/// With `--quick` no round begins that would last beyond this.
const QUICK: Duration = Duration::from_secs(7 * 60);
/// Who warms up a broker.
const WARMER: Contender = CONTENDERS[0];

pub(super) fn run(args: &ShareArgs) -> anyhow::Result<ExitCode> {
    let scenarios = chosen(args)?;
    if args.list {
        scenarios
            .iter()
            .for_each(|scenario| println!("{}", scenario.name));
        return Ok(ExitCode::SUCCESS);
    }
    let context = Context::new(false)?;
    let tools = Tools::fetch(DEFAULT_VERSION)?;
    println!("Building the clients.");
    let clients = Clients::build(&context, &tools)?;
    let began = Instant::now();
    let rounds = args.rounds.unwrap_or(if args.quick { 3 } else { 7 });
    let mut bench = Bench {
        clients,
        tools,
        logs: context.target_dir().join("benches").join("logs"),
        rounds,
        until: args.quick.then(|| began + QUICK),
        measured: Vec::new(),
        failures: Vec::new(),
    };
    fs::create_dir_all(&bench.logs)?;
    let load = machine::load();
    for brokers in [0, 1, 3] {
        let of_these: Vec<_> = scenarios
            .iter()
            .filter(|scenario| scenario.brokers == brokers)
            .collect();
        if !of_these.is_empty() {
            bench.on_cluster(brokers, &of_these, args.quick)?;
        }
    }
    let report = Report {
        quick: args.quick,
        versions: bench.clients.versions(&context),
        missing: bench.clients.missing.clone(),
        measured: bench.measured,
        failures: bench.failures,
        load,
    };
    report::write(&report, &context.root.join("benches").join("results"))?;
    println!("took {} s", began.elapsed().as_secs());
    report.say_ratios();
    Ok(ExitCode::SUCCESS)
}

fn chosen(args: &ShareArgs) -> anyhow::Result<Vec<Scenario>> {
    let mut scenarios = if args.quick {
        scenario::quick()
    } else {
        scenario::all()
    };
    for name in &args.only {
        let is_known = scenarios.iter().any(|scenario| scenario.name == *name);
        ensure!(is_known, "no scenario {name}: see --list");
    }
    if !args.only.is_empty() {
        scenarios.retain(|scenario| args.only.contains(&scenario.name));
    }
    for scenario in &mut scenarios {
        let most = args.records.unwrap_or(u64::MAX);
        scenario.shape.records = scenario.shape.records.min(most);
    }
    Ok(scenarios)
}

struct Bench {
    clients: Clients,
    tools: Tools,
    logs: PathBuf,
    rounds: u32,
    until: Option<Instant>,
    measured: Vec<Measured>,
    failures: Vec<String>,
}

impl Bench {
    fn on_cluster(
        &mut self,
        brokers: u16,
        scenarios: &[&Scenario],
        together: bool,
    ) -> anyhow::Result<()> {
        if brokers == 0 {
            return self.rounds(&mut None, scenarios);
        }
        println!("Starting {brokers} of Kafka {DEFAULT_VERSION}.");
        let cluster = Cluster::start(brokers, &self.tools, &self.clients.classes)?;
        let mut cluster = Some(cluster);
        if let Some(first) = scenarios.first() {
            self.warm_up(&mut cluster, first);
        }
        if together {
            return self.rounds(&mut cluster, scenarios);
        }
        for (index, scenario) in scenarios.iter().enumerate() {
            let later = scenarios.get(index..).unwrap_or_default();
            let shapes: Vec<Shape> = later.iter().map(|later| later.shape).collect();
            if let Some(cluster) = &mut cluster {
                cluster.keep(&shapes)?;
            }
            self.rounds(&mut cluster, &[scenario])?;
        }
        Ok(())
    }

    /// The first group of a young broker waits for its topics of state and for the JVM's compilers.
    fn warm_up(&self, cluster: &mut Option<Cluster>, scenario: &Scenario) {
        println!("Warming it up.");
        if let Err(error) = self.figures(cluster, scenario, WARMER) {
            println!("  {error:#}");
        }
    }

    /// All scenarios in each round, so that all have as many rounds where time is up.
    fn rounds(
        &mut self,
        cluster: &mut Option<Cluster>,
        scenarios: &[&Scenario],
    ) -> anyhow::Result<()> {
        for round in 0..self.rounds {
            let began = Instant::now();
            for scenario in scenarios {
                println!("{}, round {}:", scenario.name, round + 1);
                for contender in contenders(scenario, self.until.is_some()) {
                    self.one(cluster, scenario, contender);
                }
            }
            let is_last = round + 1 == self.rounds;
            let next = Instant::now() + began.elapsed();
            if !is_last && self.until.is_some_and(|until| next > until) {
                println!(
                    "No time for more than {} of {} rounds.",
                    round + 1,
                    self.rounds
                );
                break;
            }
        }
        Ok(())
    }

    fn one(&mut self, cluster: &mut Option<Cluster>, scenario: &Scenario, contender: Contender) {
        match self.figures(cluster, scenario, contender) {
            Ok(Some(figures)) => {
                println!("  {:<20} {}", contender.name, in_short(&figures));
                self.enter(scenario, contender, figures);
            }
            Ok(None) => {}
            Err(error) => {
                println!("  {:<20} FAILED: {error:#}", contender.name);
                self.failures.push(format!("{error:#}"));
            }
        }
    }

    /// `None` where the client is missing.
    fn figures(
        &self,
        cluster: &mut Option<Cluster>,
        scenario: &Scenario,
        contender: Contender,
    ) -> anyhow::Result<Option<Figures>> {
        let Some(command) = self.clients.command(contender.maker) else {
            return Ok(None);
        };
        let log = self
            .logs
            .join(format!("{}-{}.log", scenario.name, contender.name));
        let figures = match cluster {
            Some(cluster) => client::run(cluster, scenario, contender, command, &log),
            None => {
                let server = self.clients.replay(scenario.shape.value_bytes);
                client::replay(server, scenario, command, &log)
            }
        };
        figures.map(Some).with_context(|| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let said: Vec<_> = text.lines().take(5).collect();
            format!(
                "{} in {}: {}",
                contender.name,
                scenario.name,
                said.join(" | ")
            )
        })
    }

    fn enter(&mut self, scenario: &Scenario, contender: Contender, figures: Figures) {
        let known = self
            .measured
            .iter_mut()
            .find(|known| known.scenario.name == scenario.name && known.contender == contender);
        if let Some(known) = known {
            known.rounds.push(figures);
        } else {
            self.measured.push(Measured {
                scenario: scenario.clone(),
                contender,
                rounds: vec![figures],
            });
        }
    }
}

/// Everybody in the two scenarios of the base; elsewhere everybody's fastest mode; a confirmation per poll
/// where it is about latency.
fn contenders(scenario: &Scenario, quick: bool) -> Vec<Contender> {
    let is_base = ["poll-500", "poll-5000"].contains(&scenario.name.as_str());
    if scenario.brokers == 0 {
        let mut all = vec![RAW];
        all.extend(
            CONTENDERS
                .into_iter()
                .filter(|contender| contender.mode == "fast"),
        );
        // The others would take half of the time.
        all.retain(|contender| !quick || [Maker::Raw, Maker::Ours].contains(&contender.maker));
        return all;
    }
    let takes_part = |contender: &Contender| match contender.mode {
        _ if scenario.rate > 0 => contender.mode == "commit",
        "fast" => true,
        // At 5,000 a poll its flush may be faster than its piggybacking.
        "commit" => is_base || (contender.maker == Maker::Franz && scenario.poll >= 5000),
        _ => is_base,
    };
    CONTENDERS.into_iter().filter(takes_part).collect()
}

fn in_short(figures: &Figures) -> String {
    let of = |name| figures.get(name).copied().unwrap_or(0.0);
    if figures.contains_key("p50_ms") {
        return format!(
            "p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, {:.0} requests/s, {:.0} MB",
            of("p50_ms"),
            of("p99_ms"),
            of("p999_ms"),
            of("requests"),
            of("rss_mb")
        );
    }
    format!(
        "{:.0} k records/s, {:.2} CPU us, {:.0} MB, {:.2} + {:.2} requests per 1,000, first after {:.2} s",
        of("records_per_second") / 1e3,
        of("cpu_us"),
        of("rss_mb"),
        of("fetches"),
        of("acknowledges"),
        of("start_s")
    )
}
