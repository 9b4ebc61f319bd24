//! Reads and settles what is there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::ensure;
use bench_client::{Args, Decision, Mode, Progress, Tracker, decide};
use krafka::consumer::ConsumerRecord;
use krafka::share_consumer::ShareConsumer;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::{commit, hash, open};

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let progress = Arc::new(Progress::new(args.members, args.records));
    let stop = Arc::new(tokio::sync::watch::channel(false).0);
    let mut members = JoinSet::new();
    for _ in 0..args.members {
        let (args, progress, stop) = (args.clone(), Arc::clone(&progress), Arc::clone(&stop));
        members.spawn(async move { consume(args, &progress, &stop).await });
    }
    while let Some(member) = members.join_next().await {
        member??;
    }
    progress.done();
    Ok(())
}

async fn consume(
    args: Args,
    progress: &Progress,
    stop: &tokio::sync::watch::Sender<bool>,
) -> anyhow::Result<()> {
    let (consumer, failed) = open(&args).await?;
    let consumer = Arc::new(consumer);
    progress.ready();
    let mut stopped = stop.subscribe();
    let mut tracker = Tracker::default();
    loop {
        // Its poll may be dropped at any time.
        let records = tokio::select! {
            records = consumer.poll(Duration::from_secs(1)) => records?,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        if records.is_empty() {
            continue;
        }
        progress.has_records();
        let before = tracker.settled;
        if let Some(time) = args.handler {
            handle(&consumer, &args, time, records, &mut tracker).await?;
        } else {
            settle(&consumer, &args, &records, &mut tracker)?;
        }
        if args.mode == Mode::Commit {
            commit(&consumer).await?;
        }
        if progress.settled(tracker.settled - before) {
            stop.send_replace(true);
            break;
        }
    }
    commit(&consumer).await?;
    ensure!(
        failed.load(Ordering::Relaxed) == 0,
        "acknowledgements failed"
    );
    progress.ended(&tracker);
    // Its tasks go on until the process is looked at.
    std::mem::forget(consumer);
    Ok(())
}

fn settle(
    consumer: &ShareConsumer,
    args: &Args,
    records: &[ConsumerRecord],
    tracker: &mut Tracker,
) -> anyhow::Result<()> {
    for of_one in records.chunk_by(|one, next| one.partition == next.partition) {
        let Some(first) = of_one.first() else {
            continue;
        };
        let mut marks = tracker.partition(first.partition);
        for record in of_one {
            let hash = hash(record);
            let delivery = record.delivery_count.unwrap_or(1);
            match decide(args.mixed, record.offset, delivery) {
                Decision::Accept => consumer.ack(record)?,
                Decision::Reject => consumer.reject(record)?,
                Decision::Release => {
                    consumer.release(record)?;
                    continue;
                }
            }
            marks.settle(record.offset, hash);
        }
    }
    Ok(())
}

/// Many handlers at a time, that do nothing for a while.
async fn handle(
    consumer: &Arc<ShareConsumer>,
    args: &Args,
    time: Duration,
    records: Vec<ConsumerRecord>,
    tracker: &mut Tracker,
) -> anyhow::Result<()> {
    let slots = Arc::new(Semaphore::new(args.in_flight));
    let mut handlers = JoinSet::new();
    for record in records {
        tracker.settle(record.partition, record.offset, hash(&record));
        let slot = Arc::clone(&slots).acquire_owned().await?;
        let consumer = Arc::clone(consumer);
        handlers.spawn(async move {
            tokio::time::sleep(time).await;
            drop(slot);
            consumer.ack(&record)
        });
    }
    while let Some(handler) = handlers.join_next().await {
        handler??;
    }
    Ok(())
}
