//! The real driver while connections break, brokers restart and answers stay out: each record is
//! accepted in the end, no delivery is settled twice, and the consumer closes in time.
//!
//! `FAULTS_SEED=n` runs one seed.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "paused/mod.rs"]
mod paused;

use std::collections::BTreeMap;

use sharegroup_consumer::ShareConsumer;
use sharegroup_testkit::memory::{Fault, MemoryCluster};
use sharegroup_testkit::model::Place;
use sharegroup_wire::BrokerId;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use paused::{
    ACKNOWLEDGE, API_VERSIONS, FETCH, HEARTBEAT, MS, SECOND, accepted, check_legal, cluster, config,
};

const METADATA: i16 = 3;
const FIND_COORDINATOR: i16 = 10;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }

    fn fault(&mut self) -> Fault {
        match self.below(6) {
            0 => Fault::Silence,
            1 => Fault::Drop,
            2 => Fault::DropAfter,
            3 => Fault::Throttle(self.below(500) as u32 * MS),
            4 => Fault::Delay(self.below(3000) as u32 * MS),
            _ => Fault::None,
        }
    }
}

fn make_trouble(cluster: &MemoryCluster, random: &mut Random, places: &[Place]) {
    let broker = BrokerId(1 + random.below(3) as i32);
    match random.below(12) {
        0 => cluster.cut(broker),
        1 => cluster.restart(broker),
        2 => {
            let place = places[random.below(places.len() as u64) as usize];
            cluster.model(|model| model.move_leader(place, broker));
        }
        3 => cluster.model(|model| model.set_coordinator(broker)),
        4 => cluster.set_down(broker, true),
        5 | 6 => (1..=3).for_each(|broker| cluster.set_down(BrokerId(broker), false)),
        _ => {
            let apis = [
                FETCH,
                FETCH,
                ACKNOWLEDGE,
                ACKNOWLEDGE,
                HEARTBEAT,
                METADATA,
                FIND_COORDINATOR,
                API_VERSIONS,
            ];
            let api = apis[random.below(8) as usize];
            cluster.faults(api, [random.fault()]);
        }
    }
}

/// Polls and handles until nothing has come for a while and everything is accepted.
async fn work(
    mut consumer: ShareConsumer,
    cluster: MemoryCluster,
    places: Vec<Place>,
    mut random: Random,
) {
    let mut handlers = JoinSet::new();
    let started = Instant::now();
    loop {
        let polled = timeout(200 * MS, consumer.poll()).await;
        if let Ok(batch) = polled {
            let mut batch = batch.unwrap().expect("not closed");
            let time = random.below(20) as u32 * SECOND / 2;
            let how = random.below(10);
            handlers.spawn(async move {
                sleep(time).await;
                match how {
                    0 => drop(batch),
                    1 => {
                        // By record, in descending order.
                        for index in (0..batch.len()).rev() {
                            batch
                                .settle_indexes(
                                    index..index + 1,
                                    sharegroup_consumer::Acknowledge::Accept,
                                )
                                .unwrap();
                        }
                    }
                    _ => batch.accept(),
                }
            });
        }
        while handlers.try_join_next().is_some() {}
        let left: usize = places
            .iter()
            .map(|place| {
                cluster.model(|model| model.log_end(*place) - model.start_offset(*place)) as usize
            })
            .sum();
        if left == 0
            && cluster.model(|model| places.iter().all(|place| model.log_end(*place) == 200))
        {
            break;
        }
        assert!(
            started.elapsed() < 1800 * SECOND,
            "{left} left: {:?}",
            consumer.status()
        );
    }
    handlers.shutdown().await;
    let closing = Instant::now();
    drop(consumer.close(10 * SECOND).await.unwrap());
    assert!(closing.elapsed() <= 11 * SECOND, "{:?}", closing.elapsed());
}

async fn run(seed: u64) {
    let mut random = Random(seed);
    let (cluster, _) = cluster(3);
    let places = cluster.model(|model| {
        model.settings.lock = 5 * SECOND;
        model.settings.delivery_count_limit = i16::MAX;
        model.places()
    });
    let mut workers = JoinSet::new();
    for number in 0..1 + random.below(2) {
        let mut config = config(&cluster);
        config.request_timeout = 3 * SECOND;
        config.seed = seed * 10 + number;
        let builder = ShareConsumer::builder_with(config)
            .group_id("group")
            .topics(["orders"])
            .driver_on_current();
        let consumer = builder.max_poll_records(50).build().await.unwrap();
        workers.spawn(work(
            consumer,
            cluster.clone(),
            places.clone(),
            Random(seed ^ number),
        ));
    }
    for _ in 0..20 {
        for place in &places {
            cluster.model(|model| model.produce(*place, 10));
        }
        make_trouble(&cluster, &mut random, &places);
        sleep(random.below(2000) as u32 * MS).await;
    }
    (1..=3).for_each(|broker| cluster.set_down(BrokerId(broker), false));
    while let Some(worker) = workers.join_next().await {
        worker.unwrap();
    }
    sleep(60 * SECOND).await;
    let mut settled = BTreeMap::new();
    cluster.model(|model| {
        for applied in model
            .history()
            .applied
            .iter()
            .filter(|applied| applied.acknowledge_type != 4)
        {
            *settled.entry(applied.delivery).or_insert(0) += 1;
        }
    });
    assert!(
        settled.values().all(|count| *count == 1),
        "a delivery was settled twice"
    );
    for place in &places {
        assert_eq!(accepted(&cluster, *place), (0..200).collect::<Vec<_>>());
        cluster.model(|model| {
            assert_eq!(
                model.offsets(*place, |slot| matches!(
                    slot,
                    sharegroup_testkit::model::Slot::Acquired { .. }
                )),
                Vec::<i64>::new()
            )
        });
    }
    check_legal(&cluster);
}

#[tokio::test(start_paused = true)]
async fn everything_is_accepted_once_whatever_breaks() {
    if let Ok(seed) = std::env::var("FAULTS_SEED") {
        return run(seed.parse().unwrap()).await;
    }
    for seed in 0..20 {
        println!("seed {seed}; to run it alone: FAULTS_SEED={seed}");
        run(seed).await;
    }
}
