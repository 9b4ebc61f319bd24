//! Produces and consumes in one process: time from send to the acknowledgement's answer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bench_client::{Args, Samples, Tracker, Window};
use sharegroup::consumer::producer::{Producer, ProducerConfig, ProducerRecord};
use sharegroup::{Acknowledge, ClientConfig};
use tokio::time::{MissedTickBehavior, interval};

use crate::{check, open, runtime};

const VALUE_BYTES: usize = 256;

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let window = Arc::new(Window::new(&args));
    runtime()?.block_on(async {
        let mut consumer = open(&args).await?;
        let producer = {
            let (args, window) = (args.clone(), Arc::clone(&window));
            std::thread::spawn(move || runtime()?.block_on(produce(&args, &window)))
        };
        let (mut samples, mut tracker) = (Samples::default(), Tracker::default());
        let mut sent = Vec::new();
        while !window.is_complete(tracker.settled) {
            let mut batch = consumer.poll().await?.context("closed")?;
            let delivered = window.now();
            window.has_records();
            sent.clear();
            for record in batch.data().records() {
                batch.settle(record.offset, Acknowledge::Accept)?;
                tracker.settle(batch.partition(), record.offset, 0);
                let stamp = record.value.and_then(|value| value.first_chunk());
                let stamp = u64::from_le_bytes(*stamp.context("no stamp")?);
                sent.push(Duration::from_nanos(stamp));
            }
            check(&consumer.commit().await?)?;
            let acknowledged = window.now();
            for sent in sent.iter().filter(|sent| window.holds(**sent)) {
                samples.begin();
                samples.enter(delivered - *sent, acknowledged - *sent);
            }
        }
        producer.join().ok().context("the producer panicked")??;
        samples.done(tracker.again);
        Ok(())
    })
}

/// Sends records at a rate, each with the time when it was sent, until the window is over.
async fn produce(args: &Args, window: &Window) -> anyhow::Result<()> {
    let mut config = ProducerConfig::new(ClientConfig::new(&args.servers)?);
    config.linger = Duration::ZERO;
    let producer = Producer::new(config);
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
            let record = ProducerRecord::new(&args.topic)
                .partition(partition)
                .value(value);
            // Whether it is there is seen by the consumer.
            drop(producer.send(record).await?);
            index += 1;
        }
    }
    // The consumer waits in a poll for one more record, which tells that these were all.
    window.ends_with(index + 1);
    let last = ProducerRecord::new(&args.topic)
        .partition(0)
        .value(vec![0; VALUE_BYTES]);
    producer.send(last).await?.await?;
    producer.flush().await?;
    Ok(())
}
