//! Produces and consumes in one process: time from send to the acknowledgement's answer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bench_client::{Args, Samples, Tracker, Window};
use krafka::producer::Acks;
use krafka::{Kafka, Record};
use tokio::time::{MissedTickBehavior, interval};

use crate::{commit, open};

const VALUE_BYTES: usize = 256;

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let window = Arc::new(Window::new(&args));
    let (consumer, _) = open(&args).await?;
    let producing = {
        let (args, window) = (args.clone(), Arc::clone(&window));
        tokio::spawn(async move { produce(&args, &window).await })
    };
    let (mut samples, mut tracker) = (Samples::default(), Tracker::default());
    let mut sent = Vec::new();
    while !window.is_complete(tracker.settled) {
        let records = consumer.poll(Duration::from_secs(1)).await?;
        if records.is_empty() {
            continue;
        }
        let delivered = window.now();
        window.has_records();
        sent.clear();
        for record in &records {
            consumer.ack(record)?;
            tracker.settle(record.partition, record.offset, 0);
            let value = record.value.as_deref().context("no value")?;
            let stamp = value.first_chunk().context("no stamp")?;
            sent.push(Duration::from_nanos(u64::from_le_bytes(*stamp)));
        }
        commit(&consumer).await?;
        let acknowledged = window.now();
        for sent in sent.iter().filter(|sent| window.holds(**sent)) {
            samples.begin();
            samples.enter(delivered - *sent, acknowledged - *sent);
        }
    }
    producing.await??;
    samples.done(tracker.again);
    // Its tasks go on until the process is looked at.
    std::mem::forget(consumer);
    Ok(())
}

/// Sends records at a rate, each with the time when it was sent, until the window is over.
async fn produce(args: &Args, window: &Window) -> anyhow::Result<()> {
    let kafka = Kafka::builder(args.servers.as_str()).connect().await?;
    let producer = kafka
        .producer()
        .acks(Acks::All)
        .linger(Duration::ZERO)
        .build()
        .await?;
    let per_tick = args.rate.div_ceil(1000);
    let tick = Duration::from_secs(1) * u32::try_from(per_tick)? / u32::try_from(args.rate)?;
    let mut ticks = interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let partitions = u64::from(args.partitions.unsigned_abs());
    let mut index = 0;
    while !window.is_over() {
        ticks.tick().await;
        for _ in 0..per_tick {
            let mut value = vec![0; VALUE_BYTES];
            let partition = i32::try_from(index % partitions)?;
            let now = u64::try_from(window.now().as_nanos())?;
            value[..8].copy_from_slice(&now.to_le_bytes());
            let record = Record::new(args.topic.as_str(), value).partition(partition);
            // Whether it is there is seen by the consumer.
            drop(producer.enqueue(record).await?);
            index += 1;
        }
    }
    // The consumer waits in a poll for one more record, which tells that these were all.
    window.ends_with(index + 1);
    let last = Record::new(args.topic.as_str(), vec![0; VALUE_BYTES]).partition(0);
    drop(producer.send(last).await?);
    producer.flush().await?;
    Ok(())
}
