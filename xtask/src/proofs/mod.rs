//! What `cargo xtask prove` runs: what takes too long, or is too noisy, for every change.

mod decode;
mod drain;
mod embedded;
mod hostile;
mod process;

use anyhow::ensure;
use sharegroup_launcher::Kafka;

use crate::run::{Context, Count, Stage};

/// All proofs. To add one, write a function and a line here.
pub(crate) const PROOFS: &[Stage] = &[
    Stage {
        name: "versions",
        what: "each supported Kafka version starts with share groups on",
        run: versions,
    },
    Stage {
        name: "decode",
        what: "CPU time of decoding records beside kafka-protocol: 3 times with CRC, 5 times without",
        run: decode::prove,
    },
    Stage {
        name: "drain",
        what: "records/s, CPU and memory of a drain into files beside Kafka's ShareConsumerPerformance",
        run: drain::prove,
    },
    Stage {
        name: "embedded",
        what: "the embedded broker beside a real one: start, records/s and the broker's CPU for both consumers, memory",
        run: embedded::prove,
    },
    Stage {
        name: "hostile",
        what: "memory of the embedded broker while clients do what they can to it",
        run: hostile::prove,
    },
    Stage {
        name: "sessions",
        what: "a slow consumer outlives SASL sessions of 10 s for a minute: nothing cut, nothing twice (B-110)",
        run: sessions,
    },
    Stage {
        name: "handlers",
        what: "100,000 records, 2,000 handlers at a time: requests per 1,000 records, nothing twice, on both brokers",
        run: handlers,
    },
    Stage {
        name: "recovery",
        what: "50 rounds of kill -9 of the embedded broker: what it said before holds after",
        run: recovery,
    },
    Stage {
        name: "histories",
        what: "500 seeded histories, and 24 with moving leaders, agree with a real broker (SHAREGROUP_HISTORIES, _MOVES)",
        run: histories,
    },
];

fn sessions(context: &Context) -> anyhow::Result<Count> {
    let test = ["real_security", "b_110"];
    run_test(context, "consumer", &test, &[("SESSION_MS", "10000")])
}

fn handlers(context: &Context) -> anyhow::Result<Count> {
    let many = ("SHAREGROUP_HANDLED", "100000");
    run_test(context, "consumer", &["deliveries"], &[many])
}

fn recovery(context: &Context) -> anyhow::Result<Count> {
    let rounds = ("SHAREGROUP_RECOVERY_ROUNDS", "50");
    run_test(context, "broker", &["recovery"], &[rounds])
}

fn histories(context: &Context) -> anyhow::Result<Count> {
    let variables = [
        ("SHAREGROUP_HISTORIES", "500"),
        ("SHAREGROUP_MOVES", "24"),
        // They mostly wait.
        ("SHAREGROUP_THREADS", "20"),
    ];
    run_test(context, "broker", &["differential"], &variables)
}

/// Runs a test file of a crate, or what a name selects of it, with more to do than in `cargo xtask test`; variables
/// that are set stay as they are.
fn run_test(
    context: &Context,
    package: &str,
    test: &[&str],
    variables: &[(&str, &str)],
) -> anyhow::Result<Count> {
    let package = format!("sharegroup-{package}");
    let mut command = context.cargo(["test", "--package", package.as_str(), "--test"]);
    command.args(test);
    command.args(["--", "--nocapture", "--test-threads", "1"]);
    for (name, value) in variables {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    context.cargo_test(&mut command)
}

/// The supported versions of Kafka and the level of `share.version` each is started with.
const VERSIONS: [(&str, u16); 4] = [("4.1.2", 1), ("4.2.1", 1), ("4.3.1", 1), ("4.4.0", 2)];

fn versions(_: &Context) -> anyhow::Result<Count> {
    let mut count = Count::default();
    for (version, level) in VERSIONS {
        let Some(kafka) = Kafka::builder().version(version).start_or_skip()? else {
            count.skipped += 1;
            continue;
        };
        let servers = kafka.bootstrap_servers();
        let features = kafka.tool(
            "org.apache.kafka.tools.FeatureCommand",
            ["--bootstrap-server", servers.as_str(), "describe"],
        )?;
        let features = String::from_utf8_lossy(&features.stdout).into_owned();
        let finalized = format!("FinalizedVersionLevel: {level}");
        let is_on = features
            .lines()
            .any(|line| line.contains("share.version") && line.contains(&finalized));
        ensure!(
            is_on,
            "Kafka {version}: share.version {level} expected:\n{features}"
        );
        count.passed += 1;
    }
    Ok(count)
}
