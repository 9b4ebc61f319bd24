//! Where our client's time goes: `perf` over a run against the replay server, as a flame graph and a list.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use sharegroup_launcher::{DEFAULT_VERSION, Tools};

use super::client::Running;
use super::clients::{Clients, Maker, build_rust};
use crate::run::Context;

const WITHIN: Duration = Duration::from_secs(300);
/// Functions that are listed.
const LISTED: usize = 30;

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// Most records of a poll
    #[arg(long, default_value_t = 500)]
    poll: u32,
    /// Bytes of a value
    #[arg(long, default_value_t = 256)]
    value_bytes: u64,
    /// Records to read
    #[arg(long, default_value_t = 5_000_000)]
    records: u64,
    /// `fast` or `commit`
    #[arg(long, default_value = "fast")]
    mode: String,
}

pub(super) fn run(args: &ProfileArgs) -> anyhow::Result<ExitCode> {
    let context = Context::new(false)?;
    let target = context.target_dir().join("benches");
    let benches = context.root.join("benches");
    let clients = Clients::build(&context, &Tools::fetch(DEFAULT_VERSION)?)?;
    let flame = build_rust(&context, &benches, "sharegroup-flame", &target)?;
    let folder = target.join("profile");
    fs::create_dir_all(&folder)?;
    let name = format!("{}-{}-{}", args.mode, args.value_bytes, args.poll);
    let data = folder.join(format!("{name}.perf"));
    record(args, &clients, &data)?;

    let (svg, folded) = (
        folder.join(format!("{name}.svg")),
        folder.join(format!("{name}.folded")),
    );
    let mut script = Command::new("perf")
        .args(["script", "--no-inline", "-i"])
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stacks = script.stdout.take().context("its output")?;
    let title = format!(
        "{} records of {} bytes, {} a poll",
        args.mode, args.value_bytes, args.poll
    );
    let drawn = Command::new(flame)
        .arg(title)
        .args([&svg, &folded])
        .stdin(stacks)
        .status()?;
    ensure!(
        script.wait()?.success() && drawn.success(),
        "no flame graph"
    );
    list(&fs::read_to_string(&folded)?);
    println!("flame graph: {}", svg.display());
    Ok(ExitCode::SUCCESS)
}

/// Runs the client under perf.
fn record(args: &ProfileArgs, clients: &Clients, data: &Path) -> anyhow::Result<()> {
    let log = data.with_extension("log");
    let mut server = clients.replay(args.value_bytes);
    let server = Running::start(&mut server, WITHIN, &data.with_extension("server.log"))?;
    let (address, _) = server.wait_for("ready")?;
    let client = clients.command(Maker::Ours).context("our client")?;
    let mut command = Command::new("perf");
    command
        .args([
            "record",
            "--quiet",
            "-F",
            "999",
            "--call-graph",
            "dwarf,16384",
            "-o",
        ])
        .arg(data)
        .arg("--")
        .arg(client.get_program())
        .args([
            "--servers",
            &address,
            "--topic",
            "replay",
            "--group",
            "profile",
        ])
        .args(["--records", &args.records.to_string()])
        .args(["--poll", &args.poll.to_string(), "--mode", &args.mode]);
    let perf = Running::start(&mut command, WITHIN, &log)
        .context("perf can't be run (Debian's package linux-perf)")?;
    let (answer, _) = perf.wait_for("done")?;
    println!("{answer}");
    perf.end()
        .with_context(|| fs::read_to_string(log).unwrap_or_default())
}

/// What stood on top of the stack, and what was anywhere on it, by its share of all samples.
fn list(folded: &str) {
    let (mut own, mut whole, mut all) = (HashMap::new(), HashMap::new(), 0_u64);
    for line in folded.lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else {
            continue;
        };
        let count: u64 = count.parse().unwrap_or(0);
        all += count;
        let mut frames: Vec<&str> = stack.split(';').collect();
        if let Some(top) = frames.last() {
            *own.entry(*top).or_insert(0) += count;
        }
        frames.sort_unstable();
        frames.dedup();
        for frame in frames {
            *whole.entry(frame).or_insert(0) += count;
        }
    }
    for (title, counts) in [("on top", own), ("anywhere", whole)] {
        let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
        println!("{title}:");
        for (function, count) in counts.iter().take(LISTED) {
            println!(
                "  {:>5.1} %  {function}",
                *count as f64 * 100.0 / all.max(1) as f64
            );
        }
    }
}
