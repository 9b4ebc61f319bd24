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
    let package = ["test", "--package", "sharegroup-consumer"];
    let test = ["--test", "real_security", "b_110", "--", "--nocapture"];
    let mut command = context.cargo(package.into_iter().chain(test));
    command.env("SESSION_MS", "10000");
    context.cargo_test(&mut command)
}

fn recovery(context: &Context) -> anyhow::Result<Count> {
    let package = ["test", "--package", "sharegroup-broker"];
    let test = ["--test", "recovery", "--", "--nocapture"];
    let mut command = context.cargo(package.into_iter().chain(test));
    command.env("SHAREGROUP_RECOVERY_ROUNDS", "50");
    context.cargo_test(&mut command)
}

fn histories(context: &Context) -> anyhow::Result<Count> {
    let package = ["test", "--package", "sharegroup-broker"];
    let test = ["--test", "differential", "--", "--nocapture"];
    let mut command = context.cargo(package.into_iter().chain(test));
    command.args(["--test-threads", "1"]);
    for (name, value) in [
        ("SHAREGROUP_HISTORIES", "500"),
        ("SHAREGROUP_MOVES", "24"),
        // They mostly wait.
        ("SHAREGROUP_THREADS", "20"),
    ] {
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
