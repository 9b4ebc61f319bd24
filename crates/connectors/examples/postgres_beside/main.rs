//! The sink `postgres` beside Kafka Connect with Debezium's JDBC sink, and beside the same statements by hand: how many rows a
//! second, and what each costs. `cargo xtask prove postgres` runs it.
//!
//! `postgres_beside PROGRAM [--records N] [--rounds N] [--only WAY,WAY] [--mode MODE,MODE]`; ways are `ours`, `debezium` and
//! `hand`, modes `insert` and `upsert`. PROGRAM is `sharegroup`, built with `--release`.
//!
//! One broker of Kafka 4.4, one PostgreSQL with its default settings and fsync, one topic with four partitions; the three
//! in turn, each time into a new table. With `insert` the table is empty, with `upsert` every other row is there already, older.
//! At the end each table must hold what was produced. Medians are compared; a figure that misses its bound makes it fail.

mod hand;
mod judge;
mod measure;
mod server;
mod topic;
mod workers;

use std::fmt;
use std::path::PathBuf;

use sharegroup_launcher::Kafka;

use self::measure::Measured;
use self::server::Server;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Who writes the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Ours,
    Debezium,
    Hand,
}

impl Way {
    const ALL: [Self; 3] = [Self::Ours, Self::Debezium, Self::Hand];

    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Debezium => "debezium",
            Self::Hand => "hand",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Insert,
    Upsert,
}

impl Mode {
    const ALL: [Self; 2] = [Self::Insert, Self::Upsert];

    const fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Upsert => "upsert",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

struct Options {
    program: PathBuf,
    records: i64,
    rounds: usize,
    ways: Vec<Way>,
    modes: Vec<Mode>,
}

impl Options {
    fn read() -> Result<Self, AnyError> {
        let mut arguments = std::env::args().skip(1);
        let program = arguments.next().ok_or("which program?")?;
        let mut options = Self {
            program: PathBuf::from(program),
            records: 500_000,
            rounds: 3,
            ways: Way::ALL.to_vec(),
            modes: Mode::ALL.to_vec(),
        };
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or("an option without its value")?;
            let named = |name: &str| value.split(',').any(|one| one == name);
            match option.as_str() {
                "--records" => options.records = value.parse()?,
                "--rounds" => options.rounds = value.parse()?,
                "--only" => options.ways.retain(|way| named(way.name())),
                "--mode" => options.modes.retain(|mode| named(mode.name())),
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        Ok(options)
    }
}

/// One of the three, one mode, all rounds.
struct Series {
    way: Way,
    mode: Mode,
    rounds: Vec<Measured>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), AnyError> {
    let options = Options::read()?;
    let Some(kafka) = Kafka::builder().full_jit(true).start_or_skip()? else {
        return Ok(());
    };
    let server = Server::start().await?;
    topic::fill(&kafka.bootstrap_servers(), options.records).await?;
    let files = kafka.dir().join("by-hand");
    let statements = hand::prepare(&files, options.records)?;
    // A broker that has just started is slow at first.
    warm_up(&kafka, &server, &statements, &options).await?;
    let mut all: Vec<Series> = Vec::new();
    for round in 0..options.rounds {
        for &mode in &options.modes {
            for &way in &options.ways {
                let table = format!("{}_{mode}_{round}", way.name());
                server.make_table(&table, mode, options.records).await?;
                let measured = match way {
                    Way::Ours => workers::ours(&kafka, &server, &options, mode, &table).await?,
                    Way::Debezium => {
                        workers::debezium(&kafka, &server, &options, mode, &table).await?
                    }
                    Way::Hand => hand::run(&kafka, &server, &statements, mode, &table).await?,
                };
                println!("round {} {mode} {:<9} {measured}", round + 1, way.name());
                server.check_and_drop(&table, options.records).await?;
                let known = all
                    .iter_mut()
                    .find(|one| one.way == way && one.mode == mode);
                match known {
                    Some(series) => series.rounds.push(measured),
                    None => all.push(Series {
                        way,
                        mode,
                        rounds: vec![measured],
                    }),
                }
            }
        }
    }
    judge::judge(&options, &all)
}

async fn warm_up(
    kafka: &Kafka,
    server: &Server,
    statements: &[usize],
    options: &Options,
) -> Result<(), AnyError> {
    for (table, mode) in [("warm_up_0", Mode::Insert), ("warm_up_1", Mode::Upsert)] {
        server.make_table(table, mode, options.records).await?;
        hand::run(kafka, server, statements, mode, table).await?;
        server.check_and_drop(table, options.records).await?;
    }
    Ok(())
}
