//! The share consumer: its own functions, deliveries, confirmations, locks, handlers.

use std::cell::Cell;

use futures_util::StreamExt;
use sharegroup_broker::model::fault_script::FaultScript;
use sharegroup_consumer::{Delivery, Outcome, ShareConsumer};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::{Cut, GROUP, MS, PARTITIONS, SECOND, World, at_every_wait, cut};

const RECORDS: usize = 16;

/// A world with records, and a member that knows nothing of them yet.
async fn begin() -> (World, ShareConsumer) {
    let world = World::with_records(RECORDS).await;
    let consumer = world.builder().max_poll_records(7).build().await.unwrap();
    (world, consumer)
}

async fn delivery(consumer: &mut ShareConsumer) -> Delivery {
    timeout(10 * SECOND, consumer.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn t9_a_poll_that_is_dropped_loses_no_record() {
    at_every_wait(async |at| {
        let (world, mut consumer) = begin().await;
        let polled = cut(at, consumer.poll()).await;
        let is_done = polled.is_some();
        if let Some(batch) = polled {
            batch.unwrap().unwrap().accept();
        }
        world.finish(consumer).await;
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_an_implicit_poll_that_is_dropped_loses_no_record() {
    at_every_wait(async |at| {
        let (world, mut consumer) = begin().await;
        let polled = cut(at, consumer.poll_implicit()).await.map(|polled| {
            polled.unwrap().unwrap();
        });
        drop(consumer.commit().await.unwrap());
        world.finish(consumer).await;
        polled.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_poll_that_is_dropped_while_damaged_records_are_read_again_loses_none() {
    let faults = FaultScript::parse("ShareFetch orders-0 first 2: flip bit").unwrap();
    at_every_wait(async |at| {
        let world = World::with_records(RECORDS).await;
        let rules = faults.rules.iter().map(|(_, rule)| rule.clone());
        world.broker.script(rules);
        let mut consumer = world.consumer().await;
        let polled = cut(at, async {
            for _ in 0..PARTITIONS {
                consumer.poll().await.unwrap().unwrap().accept();
            }
        });
        let is_done = polled.await.is_some();
        let struck = world.broker.model(|model| model.faults.struck());
        assert!(struck > 0 || !is_done, "nothing was damaged");
        world.finish(consumer).await;
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_the_next_delivery_that_nobody_waits_for_any_more_comes_again() {
    at_every_wait(async |at| {
        let (world, mut consumer) = begin().await;
        let next = cut(at, consumer.next()).await;
        let is_done = next.is_some();
        if let Some(delivery) = next {
            drop(delivery.unwrap().unwrap().accept());
        }
        world.finish(consumer).await;
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_stream_that_is_dropped_loses_no_record() {
    at_every_wait(async |at| {
        let (world, mut consumer) = begin().await;
        let taken = cut(at, async {
            let mut deliveries = consumer.deliveries();
            for _ in 0..RECORDS / 2 {
                drop(deliveries.next().await.unwrap().unwrap().accept());
            }
        });
        let is_done = taken.await.is_some();
        world.finish(consumer).await;
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_commit_that_is_dropped_sends_its_acknowledgements_all_the_same() {
    at_every_wait(async |at| {
        let (world, mut consumer) = begin().await;
        drop(delivery(&mut consumer).await.accept());
        let is_done = cut(at, consumer.commit()).await.is_some();
        sleep(SECOND).await;
        assert_eq!(world.accepted(), 1);
        world.finish(consumer).await;
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_confirmation_that_is_dropped_leaves_its_acknowledgement_on_its_way() {
    at_every_wait(async |at| {
        let (world, mut consumer) = begin().await;
        let answer = cut(at, delivery(&mut consumer).await.accept()).await;
        assert!(answer.is_none_or(|answer| answer.is_ok()));
        sleep(SECOND).await;
        assert_eq!(world.accepted(), 1);
        world.finish(consumer).await;
        answer.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_close_that_is_dropped_goes_on() {
    at_every_wait(async |at| {
        let (world, mut consumer) = begin().await;
        let (settled, held) = (delivery(&mut consumer).await, delivery(&mut consumer).await);
        drop(settled.accept());
        let closed = cut(at, consumer.close(5 * SECOND)).await;
        let is_done = closed.is_some_and(|report| report.unwrap().is_ok());
        assert!(consumer.poll().await.unwrap().is_none());
        sleep(2 * SECOND).await;
        drop(held);
        assert_eq!(world.accepted(), 1);
        // What it held is there at once for another.
        let other = world.consumer().await;
        world.finish(other).await;
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_build_that_is_dropped_leaves_nobody_behind() {
    at_every_wait(async |at| {
        let world = World::with_records(RECORDS).await;
        let built = cut(at, world.builder().build()).await;
        let is_done = built.is_some();
        drop(built);
        sleep(6 * SECOND).await;
        let members = world.broker.model(|model| {
            let group = model.groups.get(GROUP);
            group.map_or(0, |group| group.members.len())
        });
        assert_eq!(members, 0);
        let other = world.consumer().await;
        world.finish(other).await;
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_waiting_for_a_lock_to_be_lost_changes_nothing() {
    at_every_wait(async |at| {
        let (world, mut consumer) = begin().await;
        let held = delivery(&mut consumer).await;
        world.broker.model(|model| {
            let values = model.configs.groups.get_mut(GROUP).unwrap();
            let renewals = "share.renew.acknowledge.enable".to_owned();
            values.insert(renewals, "false".to_owned());
        });
        let is_done = cut(at, held.lock().lost_or_refused()).await.is_some();
        assert!(held.accept().await.is_ok());
        world.finish(consumer).await;
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_handlers_that_are_cut_off_get_their_records_again() {
    at_every_wait(async |at| {
        let (world, mut consumer) = begin().await;
        let (handled, is_all) = (Cell::new(0), Notify::new());
        let handle = async |_: &Delivery| {
            sleep(5 * MS).await;
            handled.set(handled.get() + 1);
            if handled.get() == RECORDS {
                is_all.notify_one();
            }
            Outcome::Accept
        };
        let concurrent = consumer.concurrent(4).in_key_order();
        let concurrent = concurrent.until(is_all.notified());
        let is_done = cut(at, concurrent.for_each(handle)).await.is_some();
        sleep(SECOND).await;
        assert_eq!(
            world.accepted(),
            handled.get(),
            "what a handler ended is accepted"
        );
        world.finish(consumer).await;
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_handlers_without_an_end_can_be_cut_off_anywhere() {
    for waits in 0..40 {
        for at in [Cut::Waiting(waits), Cut::Woken(waits)] {
            let (world, mut consumer) = begin().await;
            let handle = async |_: &Delivery| {
                sleep(5 * MS).await;
                Outcome::Accept
            };
            let running = timeout(10 * SECOND, consumer.for_each_concurrent(4, handle));
            let ended = cut(at, running).await;
            assert!(ended.is_none_or(|ended| ended.is_err()), "it has no end");
            world.finish(consumer).await;
        }
    }
}
