//! Our sink `postgres` beside Kafka Connect with Debezium's JDBC sink and beside the same statements by hand: what the
//! example `postgres_beside` of the connectors says. `SHAREGROUP_ROWS` (500,000) and `SHAREGROUP_ROUNDS` (3) say how much.

use crate::run::{Context, Count};

pub(super) fn prove(context: &Context) -> anyhow::Result<Count> {
    context.output(&mut context.cargo(["build", "--release", "-p", "sharegroup-cli"]))?;
    let program = context.target_dir().join("release").join("sharegroup");
    let run = [
        "run",
        "--quiet",
        "--release",
        "--package",
        "sharegroup-connectors",
        "--features",
        "postgres",
        "--example",
        "postgres_beside",
        "--",
    ];
    let mut command = context.cargo(run);
    command.arg(program);
    for (option, variable) in [
        ("--records", "SHAREGROUP_ROWS"),
        ("--rounds", "SHAREGROUP_ROUNDS"),
    ] {
        if let Some(value) = std::env::var_os(variable) {
            command.arg(option).arg(value);
        }
    }
    print!("{}", context.output(&mut command)?);
    Ok(Count::ONE)
}
