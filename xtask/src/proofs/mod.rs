//! What `cargo xtask prove` runs: what takes too long, or is too noisy, for every change.

mod connect;
mod decode;
mod drain;
mod embedded;
mod hostile;
mod postgres;
pub(crate) mod process;

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
        name: "connect",
        what: "our file sink beside Kafka Connect's, 2,000,000 records: records/s, CPU (1/5), memory (1/10)",
        run: connect::prove,
    },
    Stage {
        name: "postgres",
        what: "our sink postgres beside Debezium's and beside statements by hand: rows/s (4, 0.7), CPU (1/10, 1.25), memory (1/20)",
        run: postgres::prove,
    },
    Stage {
        name: "scale",
        what: "5 ms a record on one partition: 6 tasks to 1 (5.5 times), 2 that become 6 (2.5 times), on both brokers",
        run: scale,
    },
    Stage {
        name: "suite",
        what: "every check of every built-in sink, with workers on a real broker as well",
        run: suite,
    },
    Stage {
        name: "http",
        what: "20,000 calls of 50 ms: 64 at a time to one (50 times), two workers to one (1.9 times); failures; calls longer than locks",
        run: http,
    },
    Stage {
        name: "kills",
        what: "500,000 records into files while their worker is killed 30 times at random: nothing is lost",
        run: kills,
    },
    Stage {
        name: "postgres-kills",
        what: "1,000,000 records into PostgreSQL while workers and the server are killed: no duplicates, no gaps",
        run: |context| postgres(context, "killed", &[("SHAREGROUP_ROWS", "1000000")]),
    },
    Stage {
        name: "postgres-outage",
        what: "PostgreSQL away for 5 locks of 30 s, four workers: nothing lost, two deliveries at most, a line a minute",
        run: |context| postgres(context, "is_away", &[("SHAREGROUP_LOCK_S", "30")]),
    },
    Stage {
        name: "postgres-bad-rows",
        what: "500 bad rows among 100,000: 500 letters, 99,500 rows, at least half the records/s of the clean run",
        run: |context| postgres(context, "bad_rows", &[("SHAREGROUP_BAD_ROWS", "500")]),
    },
    Stage {
        name: "postgres-upserts",
        what: "20,000 seeded histories of reordered redeliveries into PostgreSQL: the newest version wins",
        run: postgres_upserts,
    },
    Stage {
        name: "memory",
        what: "a sink at 1 s a record of 1 MiB, 100 partitions, 10 minutes: memory within its budget and flat (B-118)",
        run: memory,
    },
    Stage {
        name: "idle",
        what: "8 tasks on a partition not slower than 1; CPU of 8 idle ones over 5 minutes under 2 % of a core (B-122)",
        run: idle,
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
    run_test(
        context,
        "sharegroup-consumer",
        &test,
        &[("SESSION_MS", "10000")],
    )
}

fn handlers(context: &Context) -> anyhow::Result<Count> {
    let many = ("SHAREGROUP_HANDLED", "100000");
    run_test(context, "sharegroup-consumer", &["deliveries"], &[many])
}

fn recovery(context: &Context) -> anyhow::Result<Count> {
    let rounds = ("SHAREGROUP_RECOVERY_ROUNDS", "50");
    run_test(context, "sharegroup-broker", &["recovery"], &[rounds])
}

fn histories(context: &Context) -> anyhow::Result<Count> {
    let variables = [
        ("SHAREGROUP_HISTORIES", "500"),
        ("SHAREGROUP_MOVES", "24"),
        // They mostly wait.
        ("SHAREGROUP_THREADS", "20"),
    ];
    run_test(context, "sharegroup-broker", &["differential"], &variables)
}

fn scale(context: &Context) -> anyhow::Result<Count> {
    run_test(
        context,
        "sharegroup-sink",
        &["scale"],
        &[("SHAREGROUP_SCALE", "1")],
    )
}

fn suite(context: &Context) -> anyhow::Result<Count> {
    let mut command = context.cargo(["test", "--package", "sharegroup-connectors"]);
    command.args(["--all-features", "--test", "suite"]);
    command.args(["--", "--nocapture", "--test-threads", "1"]);
    command.env("SHAREGROUP_SUITE", "1");
    context.cargo_test(&mut command)
}

fn http(context: &Context) -> anyhow::Result<Count> {
    let features = ["--release", "--features", "http"];
    let mut command = context.cargo(["test", "--package", "sharegroup-connectors"]);
    command.args(features).args(["--test", "http_figures"]);
    command.args(["--", "--nocapture", "--test-threads", "1"]);
    command.env("SHAREGROUP_HTTP", "1");
    context.cargo_test(&mut command)
}

fn kills(context: &Context) -> anyhow::Result<Count> {
    let test = ["main_job", "killed_again_and_again"];
    run_test(context, "sharegroup", &test, &[("SHAREGROUP_KILLS", "30")])
}

fn postgres(context: &Context, test: &str, variables: &[(&str, &str)]) -> anyhow::Result<Count> {
    run_test(context, "sharegroup", &["postgres", test], variables)
}

fn postgres_upserts(context: &Context) -> anyhow::Result<Count> {
    let package = [
        "--package",
        "sharegroup-connectors",
        "--features",
        "postgres",
    ];
    let mut command = context.cargo(["test"]);
    command
        .args(package)
        .args(["--lib", "histories", "--", "--nocapture"]);
    context.cargo_test(command.env("SHAREGROUP_UPSERTS", "20000"))
}

fn memory(context: &Context) -> anyhow::Result<Count> {
    let test = ["ops", "b_118"];
    run_test(
        context,
        "sharegroup",
        &test,
        &[("SHAREGROUP_SLOW_RECORDS", "600")],
    )
}

fn idle(context: &Context) -> anyhow::Result<Count> {
    let test = ["ops", "b_122"];
    run_test(
        context,
        "sharegroup",
        &test,
        &[("SHAREGROUP_IDLE_SECONDS", "300")],
    )
}

/// Runs a test file of a crate, or what a name selects of it, with more to do than in `cargo xtask test`; variables
/// that are set stay as they are.
fn run_test(
    context: &Context,
    package: &str,
    test: &[&str],
    variables: &[(&str, &str)],
) -> anyhow::Result<Count> {
    let mut command = context.cargo(["test", "--package", package, "--test"]);
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
