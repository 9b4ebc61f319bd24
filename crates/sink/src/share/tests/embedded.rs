//! Against the embedded broker: what is set aside is settled only after its letter is there.

use std::collections::BTreeMap;

use bytes::Bytes;
use sharegroup_broker::model::history::Event;
use sharegroup_broker::model::topics::Place;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::record::{RecordBatch, RecordBatchBuilder};

use super::*;
use crate::policy::{SetAside, Tolerance};
use crate::task::LetterOf;

const ACCEPT: i8 = 1;
const REJECT: i8 = 3;

fn batch(base_offset: i64) -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    for offset in base_offset..base_offset + 4 {
        let value = offset.to_string();
        let none = std::iter::empty();
        builder
            .push(1000, None, Some(value.as_bytes()), none)
            .unwrap();
    }
    builder.build(0).unwrap()
}

/// A broker with a topic of three batches of four records; the second can't be read.
async fn broker() -> (Broker, Bytes) {
    let broker = orders().await;
    let mut spoiled = batch(4).to_vec();
    spoiled[..8].copy_from_slice(&4_i64.to_be_bytes());
    *spoiled.last_mut().unwrap() ^= 0xff;
    let spoiled = Bytes::from(spoiled);
    broker.model(|model| {
        model.record_history();
        let place: Place = (model.topics.named("orders").unwrap().id, 0);
        let log = &mut model.topics.partition_mut(place).unwrap().log;
        log.append(&RecordBatch::read(batch(0)).unwrap(), 0, None);
        log.push_raw(4, spoiled.clone());
        log.append(&RecordBatch::read(batch(8)).unwrap(), 0, None);
    });
    (broker, spoiled)
}

/// How each offset was settled, in order.
fn settled(broker: &Broker) -> BTreeMap<i64, Vec<i8>> {
    let mut settled: BTreeMap<i64, Vec<i8>> = BTreeMap::new();
    broker.model(|model| {
        for (_, event) in model.history.events() {
            let Event::Acknowledged { applied, .. } = event else {
                continue;
            };
            for (first, last, how) in applied.iter().filter(|(_, _, how)| *how <= REJECT) {
                for offset in *first..=*last {
                    settled.entry(offset).or_default().push(*how);
                }
            }
        }
    });
    settled
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_bad_batch_and_a_bad_record_are_rejected_and_their_letters_hold_their_bytes() {
    let (broker, spoiled) = broker().await;
    let letters = LetterBox::default();
    let sink = SinkScript::default().poisoned([9], Step::Fatal);
    let failures = FailureSettings {
        tolerance: Tolerance::All,
        set_aside: SetAside::DeadLetter,
        ..FailureSettings::default()
    };
    let client = (broker.bootstrap_servers(), broker.connector());
    let alone = task_on(client, &sink, Some(letters.clone()), failures).await;
    until("everything is settled", || settled(&broker).len() == 12).await;
    let budget = 5 * S;
    alone.control.send_replace(Control::Stop {
        deadline: Instant::now() + budget,
        budget,
    });
    alone.task.await.unwrap();
    assert_eq!(alone.shared.state(), TaskState::Stopped);
    let how = |offset| {
        if matches!(offset, 4..=7 | 9) {
            REJECT
        } else {
            ACCEPT
        }
    };
    let expected = (0..12).map(|offset| (offset, vec![how(offset)]));
    assert_eq!(settled(&broker), expected.collect());
    let mut letters = letters.all();
    letters.sort_by_key(|letter| matches!(letter.of, LetterOf::Record(_)));
    let [corrupt, record] = letters.try_into().unwrap();
    match (corrupt.of, record.of) {
        (LetterOf::Corrupt(range), LetterOf::Record(record)) => {
            assert_eq!((range.first_offset, range.last_offset), (4, 7));
            assert_eq!((range.bytes, range.delivery_count), (spoiled, 1));
            assert_eq!(
                record.records().next().unwrap().value,
                Some(b"9".as_slice())
            );
        }
        other => panic!("{other:?}"),
    }
}
