//! Produces and consumes in one process: time from send to the acknowledgement's answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_client::{Args, Samples, Tracker};
use sharegroup::consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup::{Acknowledge, ClientConfig};
use tokio::time::{MissedTickBehavior, interval};

use crate::{check, open, runtime};

const VALUE_BYTES: usize = 256;
/// Not known yet.
const ENDLESS: u64 = u64::MAX;

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let total = Arc::new(AtomicU64::new(ENDLESS));
    let origin = Instant::now();
    runtime()?.block_on(async {
        let mut consumer = open(&args).await?;
        let producer = {
            let (args, total) = (args.clone(), Arc::clone(&total));
            std::thread::spawn(move || runtime()?.block_on(produce(&args, origin, &total)))
        };
        let warm = Duration::from_secs(args.warm);
        let (mut samples, mut tracker) = (Samples::default(), Tracker::default());
        let mut sent = Vec::new();
        while tracker.settled < total.load(Ordering::Acquire) {
            let mut batch = consumer.poll().await?.context("closed")?;
            let delivered = origin.elapsed();
            sent.clear();
            for record in batch.data().records() {
                batch.settle(record.offset, Acknowledge::Accept)?;
                tracker.settle(batch.partition(), record.offset, 0);
                let stamp = record.value.and_then(|value| value.first_chunk());
                sent.push(Duration::from_nanos(u64::from_le_bytes(
                    *stamp.context("no stamp")?,
                )));
            }
            check(&consumer.commit().await?)?;
            let acknowledged = origin.elapsed();
            for sent in sent.iter().filter(|sent| **sent >= warm) {
                samples.begin();
                samples.enter(delivered - *sent, acknowledged - *sent);
            }
        }
        producer.join().ok().context("the producer panicked")??;
        samples.done(tracker.again);
        Ok(())
    })
}

/// Sends records at a rate, each with the time when it was sent, and at last says how many those were.
async fn produce(args: &Args, origin: Instant, total: &AtomicU64) -> anyhow::Result<()> {
    let mut config = ProducerConfig::new(ClientConfig::new(&args.servers)?);
    config.linger = Duration::ZERO;
    let producer = Producer::new(config);
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
            let record = ProducerRecord::new(&args.topic)
                .partition(partition)
                .value(value);
            // Whether it is there is seen by the consumer.
            drop(producer.send(record).await?);
            index += 1;
        }
    }
    // The consumer waits in a poll for one more record, which tells that these were all.
    total.store(records + 1, Ordering::Release);
    let last = ProducerRecord::new(&args.topic)
        .partition(0)
        .value(vec![0; VALUE_BYTES]);
    producer.send(last).await?.await?;
    producer.flush().await?;
    Ok(())
}
