//! Tasks with several lanes, against the embedded broker under virtual time.

use std::collections::BTreeSet;

use sharegroup_broker::model::history::Event;
use sharegroup_broker::model::share_partition::RecordState;
use sharegroup_broker::model::topics::Place;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder};

use super::*;

/// A broker with a partition of so many records, in batches of ten.
async fn broker(records: usize) -> Broker {
    let broker = orders().await;
    broker.model(|model| {
        model.record_history();
        let place: Place = (model.topics.named("orders").unwrap().id, 0);
        let log = &mut model.topics.partition_mut(place).unwrap().log;
        for _ in 0..records / 10 {
            let mut builder = RecordBatchBuilder::new(Compression::None);
            for _ in 0..10 {
                let none = std::iter::empty();
                builder.push(1000, None, Some(b"a"), none).unwrap();
            }
            let batch = builder.build(0).unwrap();
            log.append(&RecordBatch::read(batch).unwrap(), 0, None);
        }
    });
    broker
}

/// A worker with one task.
fn start(broker: &Broker, sink: &SinkScript, lines: &str) -> Worker {
    let mut loaded: Loaded = load(ScriptedConnector(vec![sink.clone()]), lines);
    for connector in &mut loaded.connectors {
        let settings = &mut connector.consumer;
        for client in [&mut settings.client, &mut settings.admin] {
            client.bootstrap_servers = vec![broker.bootstrap_servers().parse().unwrap()];
            client.connector = broker.connector();
        }
    }
    let cluster = KafkaCluster {
        startup_timeout: 10 * S,
        driver_on_current: true,
    };
    Worker::start_on(Arc::new(cluster), &loaded.worker, loaded.connectors)
}

fn per_record(time: Duration, records: usize) -> SinkScript {
    SinkScript::default().poisoned(0..records as i64, Step::WritesEvery(time))
}

/// Waits until a sink has written so many records, at most an hour.
async fn written(sink: &SinkScript, count: usize) -> Instant {
    let reached = async {
        while sink.written().len() < count {
            sleep(MS).await;
        }
        Instant::now()
    };
    timeout(3600 * S, reached).await.unwrap()
}

fn offsets(records: usize) -> Vec<i64> {
    (0..records as i64).collect()
}

/// Records that the broker holds for a member.
fn held(broker: &Broker) -> usize {
    broker.model(|model| {
        let group = model.groups.get("connect-out");
        let loaded = group.into_iter().flat_map(|group| group.loaded.values());
        let records = loaded.flat_map(|loaded| loaded.partition.records());
        let held = |record: &RecordState| matches!(record, RecordState::Acquired { .. });
        records.filter(|(_, record)| held(&record.state)).count()
    })
}

/// The highest delivery count of any record, and how many were acquired.
fn deliveries(broker: &Broker) -> (i16, u64) {
    broker.model(|model| {
        let events = model.history.events().iter();
        let ranges = events.filter_map(|(_, event)| match event {
            Event::Acquired { ranges, .. } => Some(ranges),
            _ => None,
        });
        ranges.flatten().fold((0, 0), |(count, records), range| {
            let more = range.first_offset.abs_diff(range.last_offset) + 1;
            (range.delivery_count.max(count), records + more)
        })
    })
}

/// Stops the worker; everything was written and accepted once.
async fn end(worker: Worker, broker: &Broker, sink: &SinkScript, records: usize) {
    sleep(S).await;
    worker.stop(10 * S).await;
    let mut written = sink.written();
    written.sort_unstable();
    assert_eq!(written, offsets(records));
    let totals = worker.status().totals();
    assert_eq!(
        (totals.acknowledged, totals.redelivered, totals.locks_lost),
        (records as u64, 0, 0)
    );
    assert_eq!((held(broker), deliveries(broker).0), (0, 1));
}

/// Records a second that one task writes, of 5 ms each, in the middle of what it writes.
async fn rate_of(concurrency: usize) -> f64 {
    let records = 1000 * concurrency;
    let broker = broker(records).await;
    let sink = per_record(5 * MS, records);
    let worker = start(
        &broker,
        &sink,
        &format!("share.concurrency={concurrency}\n"),
    );
    let from = written(&sink, records / 5).await;
    let first = sink.written().len();
    let to = written(&sink, records * 4 / 5).await;
    let last = sink.written().len();
    let rate = (last - first) as f64 / (to - from).as_secs_f64();
    written(&sink, records).await;
    end(worker, &broker, &sink, records).await;
    println!("share.concurrency={concurrency}: {rate:.0} records/s");
    rate
}

#[tokio::test(start_paused = true)]
async fn one_task_with_six_lanes_on_one_partition_is_nearly_six_times_as_fast_as_with_one() {
    let (one, six) = (rate_of(1).await, rate_of(6).await);
    assert!((170.0..=201.0).contains(&one), "{one}");
    assert!(six >= 4.5 * one, "{six:.0} to {one:.0}");
}

#[tokio::test(start_paused = true)]
async fn credit_bounds_what_all_lanes_hold_together() {
    let broker = broker(600).await;
    let sink = per_record(20 * MS, 600);
    let lines = "share.concurrency=6\nshare.credit.records=30\n\
                 consumer.override.share.acquire.mode=record_limit\n";
    let worker = start(&broker, &sink, lines);
    let mut most = 0;
    while sink.written().len() < 600 {
        most = held(&broker).max(most);
        sleep(5 * MS).await;
    }
    assert!((25..=30).contains(&most), "{most} held");
    let at_work: BTreeSet<_> = sink.put_times().into_iter().collect();
    let puts = sink.put_times().len();
    assert!(puts > at_work.len(), "puts begin at the same time");
    end(worker, &broker, &sink, 600).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_target_is_down_lanes_acquire_nothing_and_burn_no_delivery() {
    let broker = broker(2000).await;
    let sink = SinkScript::default().poisoned(0..2000, Step::Fails);
    let worker = start(&broker, &sink, "share.concurrency=4\n");
    sleep(60 * S).await;
    let acquired = deliveries(&broker).1;
    assert!((1..=100).contains(&acquired), "{acquired} were acquired");
    // Ten locks long; each record that is held becomes a probe before one more is acquired.
    sleep(300 * S).await;
    let (count, acquired_later) = deliveries(&broker);
    assert_eq!(count, 1);
    assert!(
        acquired_later <= acquired + 10,
        "{acquired} {acquired_later}"
    );
    sink.cure();
    written(&sink, 2000).await;
    end(worker, &broker, &sink, 2000).await;
}
