//! The producer: what was accepted is written once, what wasn't never.

use sharegroup_consumer::producer::{ProduceError, Producer, ProducerConfig, ProducerRecord};

use super::{PARTITIONS, SECOND, TOPIC, World, at_every_wait, cut};

const RECORDS: usize = 8;

fn record(number: usize) -> ProducerRecord {
    let partition = i32::try_from(number).unwrap() % PARTITIONS;
    ProducerRecord::new(TOPIC)
        .partition(partition)
        .value(number.to_string())
}

/// A producer with room for two records at a time.
fn narrow(world: &World) -> Producer {
    let mut config = ProducerConfig::new(world.config());
    config.batch_bytes_max = 1;
    config.buffer_bytes_max = 2 * 90;
    config.request_bytes_max = config.buffer_bytes_max;
    Producer::new(config)
}

#[tokio::test(start_paused = true)]
async fn t9_a_send_that_is_dropped_has_accepted_nothing() {
    at_every_wait(async |at| {
        let world = World::new().await;
        let producer = world.producer();
        let sent = cut(at, producer.send(record(0))).await;
        let is_done = sent.is_some();
        producer
            .send(record(PARTITIONS as usize))
            .await
            .unwrap()
            .await
            .unwrap();
        producer.close(10 * SECOND).await.unwrap();
        let mut expected = vec!["2".to_owned()];
        if is_done {
            expected.insert(0, "0".to_owned());
        }
        assert_eq!(world.values(0), expected);
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_send_that_waits_for_room_keeps_none_when_it_is_dropped() {
    at_every_wait(async |at| {
        let world = World::new().await;
        let producer = narrow(&world);
        let mut accepted = 0;
        let all = cut(at, async {
            for number in 0..RECORDS {
                drop(producer.send(record(number)).await.unwrap());
                accepted += 1;
            }
        });
        let is_done = all.await.is_some();
        // The whole room is there again.
        for number in accepted..RECORDS {
            drop(producer.send(record(number)).await.unwrap());
        }
        producer.close(10 * SECOND).await.unwrap();
        check_all(&world);
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_delivery_future_that_is_dropped_leaves_its_record_on_its_way() {
    at_every_wait(async |at| {
        let world = World::new().await;
        let producer = world.producer();
        send_all(&producer).await;
        let last = producer.send(record(RECORDS)).await.unwrap();
        let is_done = cut(at, last).await.is_some();
        producer.close(10 * SECOND).await.unwrap();
        assert_eq!(world.values(0).last().unwrap(), &RECORDS.to_string());
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_flush_that_is_dropped_leaves_all_records_on_their_way() {
    at_every_wait(async |at| {
        let world = World::new().await;
        let producer = world.producer();
        send_all(&producer).await;
        let is_done = cut(at, producer.flush()).await.is_some();
        producer.flush().await.unwrap();
        check_all(&world);
        producer.close(10 * SECOND).await.unwrap();
        is_done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn t9_a_close_of_a_producer_that_is_dropped_leaves_all_records_on_their_way() {
    at_every_wait(async |at| {
        let world = World::new().await;
        let producer = world.producer();
        send_all(&producer).await;
        let is_done = cut(at, producer.close(10 * SECOND)).await.is_some();
        let late = producer.send(record(0)).await;
        assert!(matches!(late, Err(ProduceError::Closed)), "{late:?}");
        producer.close(10 * SECOND).await.unwrap();
        check_all(&world);
        is_done
    })
    .await;
}

async fn send_all(producer: &Producer) {
    for number in 0..RECORDS {
        drop(producer.send(record(number)).await.unwrap());
    }
}

/// Each record is in the log once, in order.
fn check_all(world: &World) {
    for partition in 0..PARTITIONS {
        let first = usize::try_from(partition).unwrap();
        let own = (first..RECORDS).step_by(PARTITIONS as usize);
        let own: Vec<String> = own.map(|number| number.to_string()).collect();
        assert_eq!(world.values(partition), own);
    }
}
