//! krafka as a share consumer, for the benches.

mod drain;
mod latency;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use bench_client::{Args, hash_record, wait_for_end};
use krafka::Kafka;
use krafka::consumer::ConsumerRecord;
use krafka::share_consumer::{AcknowledgementMode, ShareConsumer};

fn main() -> anyhow::Result<()> {
    let args = Args::read()?;
    // As its documentation has it: `#[tokio::main]`.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    if args.rate > 0 {
        runtime.block_on(latency::run(args))?;
    } else {
        runtime.block_on(drain::run(args))?;
    }
    wait_for_end();
    std::process::exit(0);
}

/// A consumer over connections of its own, and how many of its acknowledgements failed.
async fn open(args: &Args) -> anyhow::Result<(ShareConsumer, Arc<AtomicU64>)> {
    let failed = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&failed);
    let kafka = Kafka::builder(args.servers.as_str()).connect().await?;
    let consumer = kafka
        .share_consumer(args.group.as_str())
        .acknowledgement_mode(AcknowledgementMode::Explicit)
        .max_poll_records(i32::try_from(args.poll)?)
        .batch_size(i32::try_from(args.poll)?)
        .acknowledgement_commit_callback(move |commit| {
            if let Err(error) = &commit.result {
                eprintln!("{error}");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        })
        .build()
        .await?;
    consumer.subscribe([&args.topic]).await?;
    Ok((consumer, failed))
}

async fn commit(consumer: &ShareConsumer) -> anyhow::Result<()> {
    for (partition, outcome) in consumer.commit().await? {
        ensure!(outcome.is_ok(), "{partition:?}: {outcome:?}");
    }
    Ok(())
}

fn hash(record: &ConsumerRecord) -> u64 {
    let headers = record.headers.iter();
    hash_record(
        record.timestamp,
        record.key.as_deref(),
        record.value.as_deref(),
        headers.map(|(name, value)| (name.as_bytes(), value.as_deref())),
    )
}
