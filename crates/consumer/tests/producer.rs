//! The producer against a cluster in memory, under paused time: nothing lost, nothing twice,
//! whatever happens to requests.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "produce/cluster.rs"]
mod cluster;
#[path = "../../wire/tests/log/mod.rs"]
mod log;

use std::collections::HashMap;
use std::time::Duration;

use cluster::{Cluster, Fault};
use log::Log;
use sharegroup_consumer::error::ClientError;
use sharegroup_consumer::producer::{ProduceError, Producer, ProducerConfig, ProducerRecord};
use sharegroup_wire::ErrorCode;
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn record(index: usize) -> ProducerRecord {
    ProducerRecord::new("orders").value(index.to_string())
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|index| index.to_string()).collect()
}

/// Produces 0..10 into one partition, one request per record, and expects each once and in order.
async fn ten_survive(faults: impl IntoIterator<Item = Fault>) -> Cluster {
    let cluster = Cluster::new(2).with_topic("orders", 1);
    cluster.faults(faults);
    let mut config = cluster.producer_config();
    config.batch_bytes_max = 1;
    let producer = Producer::new(config);
    let mut deliveries = Vec::new();
    for index in 0..10 {
        deliveries.push(producer.send(record(index)).await.unwrap());
    }
    for (index, delivery) in deliveries.into_iter().enumerate() {
        let metadata = delivery.await.unwrap();
        assert_eq!(metadata.offset, Some(index as i64));
        assert_eq!(metadata.partition.to_string(), "orders-0");
    }
    assert_eq!(cluster.values("orders", 0), numbers(0..10));
    cluster
}

#[tokio::test(start_paused = true)]
async fn records_are_written_in_order_with_gapless_sequences() {
    let cluster = ten_survive([]).await;
    let log = cluster.log("orders", 0);
    assert!(
        log.iter()
            .enumerate()
            .all(|(index, record)| record.sequence == index as i32 && record.epoch == 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_sent_again() {
    ten_survive([Fault::None, Fault::LoseRequest, Fault::LoseRequest]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_writes_nothing_twice() {
    let cluster = ten_survive([Fault::None, Fault::LoseAnswer, Fault::LoseAnswer]).await;
    assert_eq!(cluster.produce_requests(), 12);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_writes_nothing_twice() {
    ten_survive([Fault::None, Fault::Hang]).await;
}

#[tokio::test(start_paused = true)]
async fn retriable_codes_are_retried_and_written_once() {
    ten_survive([
        Fault::Refuse(ErrorCode::NotEnoughReplicas),
        Fault::WriteAndRefuse(ErrorCode::NotEnoughReplicasAfterAppend),
        Fault::Refuse(ErrorCode::CorruptMessage),
        Fault::WriteAndRefuse(ErrorCode::RequestTimedOut),
        Fault::Refuse(ErrorCode::KafkaStorageError),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_moved_leader_is_followed() {
    ten_survive([
        Fault::None,
        Fault::MoveLeaders,
        Fault::None,
        Fault::MoveLeaders,
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn duplicate_sequence_number_is_success() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    cluster.faults([Fault::WriteAndRefuse(ErrorCode::DuplicateSequenceNumber)]);
    let producer = Producer::new(cluster.producer_config());
    let metadata = producer.send(record(0)).await.unwrap().await.unwrap();
    assert_eq!(metadata.offset, None, "the broker did not tell it");
    assert_eq!(cluster.values("orders", 0), ["0"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_sequence_number_is_followed_by_the_next_epoch() {
    for code in [
        ErrorCode::OutOfOrderSequenceNumber,
        ErrorCode::UnknownProducerId,
    ] {
        let cluster = ten_survive([Fault::None, Fault::None, Fault::Refuse(code)]).await;
        let log = cluster.log("orders", 0);
        assert_eq!((log[1].epoch, log[1].sequence), (0, 1));
        assert_eq!((log[2].epoch, log[2].sequence), (1, 0));
        assert_eq!((log[9].epoch, log[9].sequence), (1, 7));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_forgot_the_producer_takes_what_follows() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    let producer = Producer::new(cluster.producer_config());
    for index in 0..10 {
        producer.send(record(index)).await.unwrap().await.unwrap();
        cluster.forget_producers();
    }
    assert_eq!(cluster.values("orders", 0), numbers(0..10));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_good_is_typed_and_does_not_spoil_what_follows() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    let producer = Producer::new(cluster.producer_config());
    producer.send(record(0)).await.unwrap().await.unwrap();
    cluster.faults([Fault::Refuse(ErrorCode::TopicAuthorizationFailed)]);
    let error = producer.send(record(1)).await.unwrap().await.unwrap_err();
    assert!(
        !error.is_retriable() && !error.may_have_been_written(),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "orders-0: TOPIC_AUTHORIZATION_FAILED (29): not authorized for the topic"
    );
    assert_eq!(producer.flush().await, Err(error));
    assert_eq!(producer.flush().await, Ok(()), "told once");
    producer.send(record(2)).await.unwrap().await.unwrap();
    assert_eq!(cluster.values("orders", 0), ["0", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_producer_goes_on_with_a_new_id() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    let producer = Producer::new(cluster.producer_config());
    producer.send(record(0)).await.unwrap().await.unwrap();
    cluster.faults([Fault::Refuse(ErrorCode::InvalidProducerEpoch)]);
    let error = producer.send(record(1)).await.unwrap().await.unwrap_err();
    assert!(
        matches!(
            error,
            ProduceError::Broker {
                code: ErrorCode::InvalidProducerEpoch,
                ..
            }
        ),
        "{error}"
    );
    producer.send(record(2)).await.unwrap().await.unwrap();
    let log = cluster.log("orders", 0);
    assert_ne!(log[0].producer_id, log[1].producer_id);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_confirmed_in_time_fails_and_says_whether_it_may_be_written() {
    for (fault, may_have_been_written) in [
        (Fault::Refuse(ErrorCode::NotEnoughReplicas), false),
        (Fault::LoseAnswer, true),
        (Fault::Hang, true),
        (Fault::WriteAndRefuse(ErrorCode::KafkaStorageError), true),
        (Fault::WriteAndRefuse(ErrorCode::NotLeaderOrFollower), true),
    ] {
        let cluster = Cluster::new(1).with_topic("orders", 1);
        let producer = Producer::new(cluster.producer_config());
        producer.send(record(0)).await.unwrap().await.unwrap();
        cluster.always(Some(fault));
        let started = Instant::now();
        let error = producer.send(record(1)).await.unwrap().await.unwrap_err();
        assert!(started.elapsed() <= 121 * SECOND, "{:?}", started.elapsed());
        let ProduceError::DeliveryTimeout {
            may_have_been_written: may,
            last: Some(_),
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*may, may_have_been_written, "{fault:?}: {error}");
        assert!(error.is_retriable());

        // What follows is not held up, and comes after whatever was written.
        cluster.always(None);
        producer.send(record(2)).await.unwrap().await.unwrap();
        let log = cluster.values("orders", 0);
        assert_eq!(log.last().map(String::as_str), Some("2"), "{log:?}");
        assert_eq!(
            log.iter().filter(|value| *value == "1").count(),
            usize::from(may_have_been_written)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_trouble_of_many_batches_is_logged_once_a_minute_with_all_records_counted() {
    let (log, guard) = Log::start();
    let cluster = Cluster::new(1).with_topic("orders", 4);
    cluster.always(Some(Fault::Refuse(ErrorCode::KafkaStorageError)));
    let mut config = cluster.producer_config();
    config.batch_bytes_max = 1;
    config.delivery_timeout = 30 * SECOND;
    let producer = Producer::new(config);
    let mut deliveries = Vec::new();
    for index in 0..100 {
        deliveries.push(producer.send(record(index)).await.unwrap());
        tokio::time::sleep(SECOND / 10).await;
    }
    for delivery in deliveries {
        let error = delivery.await.unwrap_err();
        assert!(
            error.may_have_been_written() || !error.to_string().contains("KAFKA_STORAGE_ERROR")
        );
    }
    drop(producer);
    tokio::time::sleep(SECOND).await;
    drop(guard);
    assert_eq!(log.lines("Producing again.").len(), 1);
    // Of those that were tried and of those that waited behind them.
    let lost = [log.lines("Records were not"), log.lines("Further records")].concat();
    assert!(lost.len() <= 4, "{lost:?}");
    let records = lost.iter().map(|line| {
        let (_, count) = line.split_once("records=").unwrap();
        count.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    assert_eq!(records.sum::<u64>(), 100);
}

#[tokio::test(start_paused = true)]
async fn batches_wait_for_company_up_to_linger() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    let mut config = cluster.producer_config();
    config.linger = SECOND;
    let producer = Producer::new(config);
    let started = Instant::now();
    let first = producer.send(record(0)).await.unwrap();
    for index in 1..100 {
        drop(producer.send(record(index)).await.unwrap());
    }
    first.await.unwrap();
    assert!(
        (SECOND..2 * SECOND).contains(&started.elapsed()),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(cluster.produce_requests(), 1);
    assert_eq!(cluster.values("orders", 0), numbers(0..100));
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_and_a_flush_do_not_wait_for_linger() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    let mut config = cluster.producer_config();
    config.linger = 3600 * SECOND;
    config.delivery_timeout = 7200 * SECOND;
    let producer = Producer::new(config);
    let started = Instant::now();
    let large = ProducerRecord::new("orders").value(vec![b'x'; 20_000]);
    producer.send(large).await.unwrap().await.unwrap();
    let small = producer.send(record(1)).await.unwrap();
    producer.flush().await.unwrap();
    small.await.unwrap();
    assert!(started.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn send_waits_for_room_and_then_says_that_there_is_none() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    cluster.answer_after(10 * SECOND);
    let mut config = cluster.producer_config();
    config.buffer_bytes_max = 1500;
    config.linger = 3600 * SECOND;
    config.block_max = 15 * SECOND;
    let producer = Producer::new(config);
    let value = vec![b'x'; 1000];
    let first = producer
        .send(ProducerRecord::new("orders").value(value.clone()))
        .await
        .unwrap();
    // The second waits for the first, which goes out although it might linger.
    let started = Instant::now();
    let second = producer
        .send(ProducerRecord::new("orders").value(value.clone()))
        .await
        .unwrap();
    assert!(started.elapsed() >= 10 * SECOND);
    first.await.unwrap();

    cluster.answer_after(20 * SECOND);
    let error = producer
        .send(ProducerRecord::new("orders").value(value.clone()))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            ProduceError::BufferFull {
                buffer_bytes: 1500,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("buffer.memory"), "{error}");
    second.await.unwrap();
    let error = producer
        .send(ProducerRecord::new("orders").value(vec![0; 1500]))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            ProduceError::RecordTooLarge {
                limit: "buffer.memory",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_appears_while_send_waits_is_used() {
    let cluster = Cluster::new(1);
    let producer = Producer::new(cluster.producer_config());
    let late = cluster.clone();
    let (sent, ()) = tokio::join!(producer.send(record(0)), async move {
        tokio::time::sleep(5 * SECOND).await;
        late.create_topic("orders", 1);
    });
    sent.unwrap().await.unwrap();
    let started = Instant::now();
    let error = producer
        .send(ProducerRecord::new("nowhere").value("x"))
        .await
        .unwrap_err();
    assert_eq!(started.elapsed(), 60 * SECOND);
    let ProduceError::NoMetadata {
        last: Some(last), ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(
        matches!(
            **last,
            ClientError::Broker {
                code: ErrorCode::UnknownTopicOrPartition,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn close_confirms_what_was_accepted_and_refuses_the_rest() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    let producer = Producer::new(cluster.producer_config());
    let delivery = producer.send(record(0)).await.unwrap();
    producer.close(5 * SECOND).await.unwrap();
    delivery.await.unwrap();
    assert_eq!(
        producer.send(record(1)).await.unwrap_err(),
        ProduceError::Closed
    );
    producer.close(5 * SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn close_ends_at_its_deadline() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    cluster.always(Some(Fault::Hang));
    let producer = Producer::new(cluster.producer_config());
    let delivery = producer.send(record(0)).await.unwrap();
    let started = Instant::now();
    assert_eq!(producer.close(5 * SECOND).await, Err(ProduceError::Closed));
    assert_eq!(started.elapsed(), 5 * SECOND);
    let error = timeout(SECOND, delivery).await.unwrap().unwrap_err();
    assert!(error == ProduceError::Closed && error.may_have_been_written());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_producer_still_delivers_what_it_accepted() {
    let cluster = Cluster::new(1).with_topic("orders", 1);
    cluster.faults([Fault::LoseRequest, Fault::LoseAnswer]);
    let producer = Producer::new(cluster.producer_config());
    let delivery = producer.send(record(0)).await.unwrap();
    drop(producer);
    delivery.await.unwrap();
    assert_eq!(cluster.values("orders", 0), ["0"]);
}

#[test]
fn a_runtime_that_ends_fails_what_waits() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let cluster = Cluster::new(1).with_topic("orders", 1);
    cluster.always(Some(Fault::Hang));
    let (producer, delivery) = runtime.block_on(async {
        let producer = Producer::new(cluster.producer_config());
        let delivery = producer.send(record(0)).await.unwrap();
        tokio::time::sleep(SECOND).await;
        (producer, delivery)
    });
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert_eq!(
        runtime.block_on(delivery).unwrap_err(),
        ProduceError::Closed
    );
    assert_eq!(
        runtime.block_on(producer.send(record(1))).unwrap_err(),
        ProduceError::Closed
    );
}

#[tokio::test(start_paused = true)]
async fn records_without_a_key_fill_one_partition_then_another() {
    let cluster = Cluster::new(1).with_topic("orders", 4);
    let mut config = cluster.producer_config();
    config.batch_bytes_max = 1000;
    let producer = Producer::new(config);
    for index in 0..1000 {
        drop(producer.send(record(index)).await.unwrap());
    }
    producer.flush().await.unwrap();
    let counts: Vec<_> = (0..4)
        .map(|partition| cluster.values("orders", partition).len())
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), 1000);
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_has_one_request_at_a_time_with_the_batches_of_all_partitions() {
    let cluster = Cluster::new(1).with_topic("orders", 8);
    cluster.answer_after(SECOND);
    let mut config = cluster.producer_config();
    config.batch_bytes_max = 100;
    let producer = Producer::new(config);
    for index in 0..80 {
        drop(
            producer
                .send(record(index).partition(index as i32 % 8))
                .await
                .unwrap(),
        );
    }
    producer.flush().await.unwrap();
    assert_eq!(cluster.most_requests_at_once(), 1);
    assert!(
        cluster.produce_requests() <= 11,
        "{}",
        cluster.produce_requests()
    );
}

/// Random faults under a seed: each record is confirmed once, in order per key.
async fn survives_random_faults(seed: u64, compression: &str) {
    let mut random = seed;
    let mut next = move |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let cluster = Cluster::new(3).with_topic("orders", 5);
    let fault = |number| match number {
        0 => Fault::LoseRequest,
        1 => Fault::LoseAnswer,
        2 => Fault::MoveLeaders,
        3 => Fault::Refuse(ErrorCode::NotEnoughReplicas),
        4 => Fault::WriteAndRefuse(ErrorCode::NotEnoughReplicasAfterAppend),
        5 => Fault::Hang,
        _ => Fault::None,
    };
    cluster.faults((0..200).map(|_| fault(next(16))));
    let mut config: ProducerConfig = cluster.producer_config();
    config.set("compression.type", compression).unwrap();
    config.batch_bytes_max = 300;
    config.client.request_timeout = 3 * SECOND;
    config.delivery_timeout = 3600 * SECOND;
    config.buffer_bytes_max = 4000;
    let producer = Producer::new(config);
    let mut deliveries = Vec::new();
    for index in 0..2000 {
        let key = format!("key-{}", index % 17);
        deliveries.push(producer.send(record(index).key(key)).await.unwrap());
    }
    producer.close(3600 * SECOND).await.unwrap();
    let mut offsets: HashMap<(i32, i64), usize> = HashMap::new();
    for (index, delivery) in deliveries.into_iter().enumerate() {
        let metadata = delivery
            .await
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        offsets.insert(
            (metadata.partition.partition, metadata.offset.unwrap()),
            index,
        );
    }
    assert_eq!(offsets.len(), 2000, "seed {seed}");
    let mut last_of_key: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut count = 0;
    for partition in 0..5 {
        for (offset, logged) in cluster.log("orders", partition).into_iter().enumerate() {
            let index: usize = std::str::from_utf8(&logged.value).unwrap().parse().unwrap();
            assert_eq!(
                offsets.get(&(partition as i32, offset as i64)),
                Some(&index),
                "seed {seed}"
            );
            let last = last_of_key.insert(logged.key.unwrap().to_vec(), index);
            assert!(
                last.is_none_or(|last| last < index),
                "seed {seed}: {last:?} before {index}"
            );
            count += 1;
        }
    }
    assert_eq!(count, 2000, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn random_faults_lose_and_repeat_nothing() {
    for seed in 1..=20 {
        survives_random_faults(seed, "none").await;
    }
    survives_random_faults(21, "lz4").await;
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_and_opened_again_for_the_next_record() {
    let cluster = Cluster::new(2).with_topic("orders", 1);
    let mut config = cluster.producer_config();
    config.client.connections_max_idle = Some(60 * SECOND);
    // Metadata is asked for again, over the connection for cold traffic.
    config.client.metadata_max_age = 10_000 * SECOND;
    let producer = Producer::new(config);
    for index in 0..3 {
        let started = Instant::now();
        producer.send(record(index)).await.unwrap().await.unwrap();
        assert!(started.elapsed() < SECOND, "{:?}", started.elapsed());
        assert!(cluster.open_connections() > 0);
        tokio::time::sleep(61 * SECOND).await;
        assert_eq!(cluster.open_connections(), 0);
    }
    assert_eq!(cluster.values("orders", 0), numbers(0..3));
}
