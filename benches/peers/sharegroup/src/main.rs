//! This project's client for the benches.

mod drain;
mod latency;

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bench_client::{Args, Progress, hash_record, wait_for_end};
use sharegroup::{CommitReport, Record, ShareConsumer};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

fn main() -> anyhow::Result<()> {
    let args = Args::read()?;
    if args.rate > 0 {
        latency::run(args)?;
    } else {
        let progress = Arc::new(Progress::new(args.members, args.records));
        let (stop, _) = watch::channel(false);
        // One thread per consumer, as with the other clients.
        let members: Vec<_> = (0..args.members)
            .map(|_| {
                let (args, progress, stop) = (args.clone(), Arc::clone(&progress), stop.clone());
                std::thread::spawn(move || runtime()?.block_on(drain::run(args, &progress, &stop)))
            })
            .collect();
        for member in members {
            member.join().ok().context("a consumer panicked")??;
        }
        progress.done();
    }
    wait_for_end();
    Ok(())
}

fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

async fn open(args: &Args) -> anyhow::Result<ShareConsumer> {
    let held_max = u32::try_from(args.poll * 4)?.max(10_000);
    let builder = ShareConsumer::builder(&args.servers)
        .group_id(&args.group)
        .topics([&args.topic])
        .max_poll_records(args.poll)
        .records_held_max(held_max);
    Ok(builder.build().await?)
}

fn hash(record: &Record<'_>) -> u64 {
    let headers = record.headers().map(|header| (header.key, header.value));
    hash_record(record.timestamp, record.key, record.value, headers)
}

fn check(report: &CommitReport) -> anyhow::Result<()> {
    ensure!(report.is_ok(), "acknowledgements didn't count: {report:?}");
    Ok(())
}
