//! What must hold of the medians.

use super::measure::Measured;
use super::{AnyError, Mode, Options, Series, Way};

/// One figure and its bound.
struct Check {
    what: String,
    figure: f64,
    bound: f64,
    at_least: bool,
}

impl Check {
    fn holds(&self) -> bool {
        match self.at_least {
            true => self.figure >= self.bound,
            false => self.figure <= self.bound,
        }
    }
}

/// Prints medians and ratios.
///
/// # Errors
/// The bounds that were missed.
pub(super) fn judge(options: &Options, all: &[Series]) -> Result<(), AnyError> {
    println!(
        "\n{} records, JSON with schema, 4 partitions; {} rounds in turn, medians:",
        options.records, options.rounds
    );
    let mut checks = Vec::new();
    for &mode in &options.modes {
        let series = |way| all.iter().find(|one| one.way == way && one.mode == mode);
        for way in Way::ALL {
            if let Some(series) = series(way) {
                println!("  {mode} {:<9} {}", way.name(), medians(&series.rounds)?);
            }
        }
        let Some(ours) = series(Way::Ours) else {
            continue;
        };
        let ours = medians(&ours.rounds)?;
        if let Some(debezium) = series(Way::Debezium) {
            checks.extend(beside_debezium(mode, &ours, &medians(&debezium.rounds)?));
        }
        if let Some(hand) = series(Way::Hand) {
            checks.extend(beside_hand(mode, &ours, &medians(&hand.rounds)?));
        }
    }
    println!("bounds:");
    for check in &checks {
        println!(
            "  {:<6} {:<62} {:>6.3} {} {:.3}",
            if check.holds() { "holds" } else { "MISSED" },
            check.what,
            check.figure,
            if check.at_least { ">=" } else { "<=" },
            check.bound
        );
    }
    match checks.iter().filter(|check| !check.holds()).count() {
        0 => Ok(()),
        missed => Err(format!("{missed} of {} bounds are missed", checks.len()).into()),
    }
}

fn beside_debezium(mode: Mode, ours: &Measured, debezium: &Measured) -> [Check; 3] {
    let what = |what: &str| format!("{mode}: {what}, ours to Debezium's");
    [
        Check {
            what: what("rows/s"),
            figure: ours.rows_per_second / debezium.rows_per_second,
            bound: 4.0,
            at_least: true,
        },
        Check {
            what: what("worker's CPU per row without start"),
            figure: ours.worker / debezium.worker,
            bound: 0.1,
            at_least: false,
        },
        Check {
            what: what("peak memory"),
            figure: ours.memory / debezium.memory,
            bound: 0.05,
            at_least: false,
        },
    ]
}

fn beside_hand(mode: Mode, ours: &Measured, hand: &Measured) -> [Check; 2] {
    let what = |what: &str| format!("{mode}: {what}, ours to the same by hand");
    [
        Check {
            what: what("rows/s"),
            figure: ours.rows_per_second / hand.rows_per_second,
            bound: 0.7,
            at_least: true,
        },
        Check {
            what: what("PostgreSQL's CPU per row"),
            figure: ours.server / hand.server,
            bound: 1.25,
            at_least: false,
        },
    ]
}

fn medians(rounds: &[Measured]) -> Result<Measured, AnyError> {
    let of = |figure: fn(&Measured) -> f64| {
        let mut figures: Vec<_> = rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().ok_or("no rounds")
    };
    Ok(Measured {
        rows_per_second: of(|round| round.rows_per_second)?,
        steady: of(|round| round.steady)?,
        worker: of(|round| round.worker)?,
        worker_whole: of(|round| round.worker_whole)?,
        server: of(|round| round.server)?,
        broker: of(|round| round.broker)?,
        memory: of(|round| round.memory)?,
        start: of(|round| round.start)?,
    })
}
