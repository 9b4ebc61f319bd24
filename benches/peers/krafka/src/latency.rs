//! Produces and consumes in one process: time from send to the acknowledgement's answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_client::{Args, Samples, Tracker};
use krafka::producer::Acks;
use krafka::{Kafka, Record};
use tokio::time::{MissedTickBehavior, interval};

use crate::{commit, open};

const VALUE_BYTES: usize = 256;

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let total = Arc::new(AtomicU64::new(u64::MAX));
    let origin = Instant::now();
    let (consumer, _) = open(&args).await?;
    let producing = {
        let (args, total) = (args.clone(), Arc::clone(&total));
        tokio::spawn(async move { produce(&args, origin, &total).await })
    };
    let warm = Duration::from_secs(args.warm);
    let (mut samples, mut tracker) = (Samples::default(), Tracker::default());
    let mut sent = Vec::new();
    while tracker.settled < total.load(Ordering::Acquire) {
        let records = consumer.poll(Duration::from_secs(1)).await?;
        if records.is_empty() {
            continue;
        }
        let delivered = origin.elapsed();
        sent.clear();
        for record in &records {
            consumer.ack(record)?;
            tracker.settle(record.partition, record.offset, 0);
            let value = record.value.as_deref().context("no value")?;
            let stamp = value.first_chunk().context("no stamp")?;
            sent.push(Duration::from_nanos(u64::from_le_bytes(*stamp)));
        }
        commit(&consumer).await?;
        let acknowledged = origin.elapsed();
        for sent in sent.iter().filter(|sent| **sent >= warm) {
            samples.begin();
            samples.enter(delivered - *sent, acknowledged - *sent);
        }
    }
    producing.await??;
    samples.done(tracker.again);
    std::mem::forget(consumer);
    Ok(())
}

/// Sends records at a rate, each with the time when it was sent, and at last says how many those were.
async fn produce(args: &Args, origin: Instant, total: &AtomicU64) -> anyhow::Result<()> {
    let kafka = Kafka::builder(args.servers.as_str()).connect().await?;
    let producer = kafka
        .producer()
        .acks(Acks::All)
        .linger(Duration::ZERO)
        .build()
        .await?;
    let per_tick = args.rate.div_ceil(1000);
    let mut ticks =
        interval(Duration::from_secs(1) * u32::try_from(per_tick)? / u32::try_from(args.rate)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let records = args.rate * (args.warm + args.seconds);
    let mut index = 0;
    while index < records {
        ticks.tick().await;
        for _ in 0..per_tick.min(records - index) {
            let mut value = vec![0; VALUE_BYTES];
            let partition = i32::try_from(index % u64::from(args.partitions.unsigned_abs()))?;
            let now = u64::try_from(origin.elapsed().as_nanos())?;
            value[..8].copy_from_slice(&now.to_le_bytes());
            let record = Record::new(args.topic.as_str(), value).partition(partition);
            drop(producer.enqueue(record).await?);
            index += 1;
        }
    }
    // The consumer waits in a poll for one more record, which tells that these were all.
    total.store(records + 1, Ordering::Release);
    let last = Record::new(args.topic.as_str(), vec![0; VALUE_BYTES]).partition(0);
    drop(producer.send(last).await?);
    producer.flush().await?;
    Ok(())
}
