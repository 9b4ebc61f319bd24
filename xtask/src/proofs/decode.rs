//! Decode of record batches beside `kafka-protocol`.

use crate::run::{Context, Count};

pub(super) fn prove(context: &Context) -> anyhow::Result<Count> {
    let run = [
        "run",
        "--quiet",
        "--release",
        "--manifest-path",
        "benches/Cargo.toml",
        "--bin",
        "decode",
    ];
    let mut command = context.cargo(run);
    command.env("CARGO_TARGET_DIR", context.target_dir().join("benches"));
    print!("{}", context.output(&mut command)?);
    Ok(Count::ONE)
}
