//! Reads and settles what is there.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::Context as _;
use bench_client::{Args, Decision, Mode, Progress, Tracker, decide};
use sharegroup::{Acknowledge, Outcome, PollError, ShareConsumer};
use tokio::sync::watch;

use crate::{check, hash, open};

/// One consumer, until all of them have settled enough.
pub(crate) async fn run(
    args: Args,
    progress: &Progress,
    stop: &watch::Sender<bool>,
) -> anyhow::Result<()> {
    let mut consumer = open(&args).await?;
    progress.ready();
    let tracker = if let Some(time) = args.handler {
        handle(&mut consumer, &args, time, progress, stop).await?
    } else {
        poll(&mut consumer, &args, progress, stop).await?
    };
    check(&consumer.commit().await?)?;
    progress.ended(&tracker);
    Ok(())
}

async fn poll(
    consumer: &mut ShareConsumer,
    args: &Args,
    progress: &Progress,
    stop: &watch::Sender<bool>,
) -> anyhow::Result<Tracker> {
    let mut stopped = stop.subscribe();
    let whole = args.own.iter().any(|own| own == "settle=whole");
    let mut tracker = Tracker::default();
    loop {
        let polled = tokio::select! {
            polled = consumer.poll() => polled?,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        let mut batch = polled.context("closed")?;
        progress.has_records();
        let before = tracker.settled;
        let mut marks = tracker.partition(batch.partition());
        for record in batch.data().records() {
            let hash = hash(&record);
            let how = match decide(args.mixed, record.offset, record.delivery_count) {
                Decision::Accept => Acknowledge::Accept,
                Decision::Release => Acknowledge::Release,
                Decision::Reject => Acknowledge::Reject,
            };
            if !whole {
                batch.settle(record.offset, how)?;
            }
            if how != Acknowledge::Release {
                marks.settle(record.offset, hash);
            }
        }
        if whole {
            batch.accept();
        }
        if args.mode == Mode::Commit {
            check(&consumer.commit().await?)?;
        }
        if progress.settled(tracker.settled - before) {
            stop.send_replace(true);
            break;
        }
    }
    Ok(tracker)
}

/// Many handlers at a time, that do nothing for a while.
async fn handle(
    consumer: &mut ShareConsumer,
    args: &Args,
    time: Duration,
    progress: &Progress,
    stop: &watch::Sender<bool>,
) -> anyhow::Result<Tracker> {
    let mut stopped = stop.subscribe();
    let tracker = RefCell::new(Tracker::default());
    let handler = async |delivery: &sharegroup::Delivery| {
        progress.has_records();
        let record = delivery.record();
        let hash = hash(&record);
        tokio::time::sleep(time).await;
        let is_new = tracker
            .borrow_mut()
            .settle(delivery.partition(), record.offset, hash);
        if progress.settled(u64::from(is_new)) {
            stop.send_replace(true);
        }
        Outcome::Accept
    };
    let working = consumer.concurrent(args.in_flight).until(async {
        // Only that it has come matters.
        drop(stopped.wait_for(|stopped| *stopped).await);
    });
    let worked: Result<(), PollError> = working.for_each(handler).await;
    worked?;
    Ok(tracker.into_inner())
}
