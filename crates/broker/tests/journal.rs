//! A model's journal: what is noted, taken back, and said again in short.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod steps;

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sharegroup_broker::model::journal::Entry;
use sharegroup_broker::model::{Model, ModelConfig};
use steps::{Steps, batch, orders};

/// How much later a model is restored: what the steps take at most, and less than a transaction may be
/// open.
const LATER_MS: i64 = 50_000;

fn snapshot(model: &Model) -> Vec<Entry> {
    model.snapshot().collect()
}

/// Share partitions notice when they are fetched that retention has dropped what they stood on.
fn cut_fronts(model: &mut Model) {
    for (place, loaded) in model
        .groups
        .values_mut()
        .flat_map(|group| &mut group.loaded)
    {
        let log = &model.topics.partition(*place).unwrap().log;
        loaded.partition.cut_front(log.start_offset());
    }
}

fn restored(entries: impl IntoIterator<Item = Entry>) -> Model {
    let config = ModelConfig {
        seed: 99,
        unix_ms: ModelConfig::default().unix_ms + LATER_MS,
        ..ModelConfig::default()
    };
    let mut model = Model::new(Instant::now(), config);
    for entry in entries {
        model.restore(entry).unwrap();
    }
    cut_fronts(&mut model);
    model
}

fn first_difference(is: &[Entry], restored: &Model) -> Option<(Option<Entry>, Option<Entry>)> {
    let mut restored = restored.snapshot();
    let mut is = is.iter().cloned();
    loop {
        match (is.next(), restored.next()) {
            (None, None) => return None,
            (one, other) if one != other => return Some((one, other)),
            _ => {}
        }
    }
}

/// A model with a journal from its first moment on.
fn noting(seed: u64) -> (Model, Vec<Entry>) {
    let config = ModelConfig {
        seed,
        ..ModelConfig::default()
    };
    let mut model = Model::new(Instant::now(), config);
    model.keep_journal();
    let entries = snapshot(&model);
    (model, entries)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// After each step the journal gives the model that wrote it, and so does its snapshot.
    #[test]
    fn a_journal_gives_the_model_that_wrote_it(seed in any::<u64>()) {
        let mut now = Instant::now();
        let (mut model, mut journal) = noting(seed);
        let mut steps = Steps::begin(seed, &mut model, now);
        for step in 0..80 {
            steps.step(&mut model, &mut now);
            journal.extend(model.take_entries());
            cut_fronts(&mut model);
            let is = snapshot(&model);
            if step % 10 == 9 {
                prop_assert_eq!(first_difference(&is, &restored(journal.clone())), None);
                prop_assert_eq!(first_difference(&is, &restored(is.clone())), None);
            }
        }
    }

    /// Entries go through their encoding unchanged.
    #[test]
    fn entries_are_read_as_they_were_written(seed in any::<u64>()) {
        let mut now = Instant::now();
        let (mut model, mut journal) = noting(seed);
        let mut steps = Steps::begin(seed, &mut model, now);
        for _ in 0..30 {
            steps.step(&mut model, &mut now);
        }
        journal.extend(model.take_entries());
        journal.extend(snapshot(&model));
        let mut bytes = BytesMut::new();
        for entry in &journal {
            entry.encode(&mut bytes);
        }
        prop_assert_eq!(Entry::decode_all(&bytes.freeze()).unwrap(), journal);
    }

    /// Whatever the bytes are, reading them ends, and so does taking back what could be read.
    #[test]
    fn random_bytes_never_abort(bytes in prop::collection::vec(any::<u8>(), 0..400), flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..5)) {
        drop(Entry::decode_all(&Bytes::from(bytes)));
        let mut now = Instant::now();
        let (mut model, mut journal) = noting(7);
        let mut steps = Steps::begin(7, &mut model, now);
        for _ in 0..12 {
            steps.step(&mut model, &mut now);
        }
        journal.extend(model.take_entries());
        let mut bytes = BytesMut::new();
        for entry in &journal {
            entry.encode(&mut bytes);
        }
        let mut bytes = bytes.to_vec();
        for (index, bit) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= 1 << bit;
        }
        let mut model = restored([]);
        for entry in Entry::decode_all(&bytes.into()).unwrap_or_default() {
            drop(model.restore(entry));
        }
        model.finish_restore(Instant::now());
    }
}

#[test]
fn nothing_is_noted_until_somebody_asks() {
    let mut now = Instant::now();
    let mut model = Model::new(now, ModelConfig::default());
    let mut steps = Steps::begin(1, &mut model, now);
    for _ in 0..30 {
        steps.step(&mut model, &mut now);
    }
    assert_eq!(model.take_entries(), []);
}

#[test]
fn a_producer_goes_on_where_it_was_and_its_id_is_never_given_again() {
    let now = Instant::now();
    let (mut model, mut journal) = noting(1);
    let mut steps = Steps::begin(1, &mut model, now);
    let place = (orders(&model), 0);
    let producer = steps.new_producer(&mut model, now, None);
    let first = batch(2, Some((producer, 0, false)));
    let second = batch(2, Some((producer, 2, false)));
    steps.produce(&mut model, now, (place, first.clone()), None);
    let before = steps.produce(&mut model, now, (place, second.clone()), None);
    journal.extend(model.take_entries());

    let mut model = restored(journal);
    model.finish_restore(now);
    let again = steps.produce(&mut model, now, (place, second), None);
    assert_eq!(again, before);
    let next = batch(2, Some((producer, 4, false)));
    let next = steps.produce(&mut model, now, (place, next), None);
    assert_eq!(
        (next.error_code, next.base_offset),
        (sharegroup_wire::ErrorCode::None, 4)
    );
    assert!(steps.new_producer(&mut model, now, None).0 > producer.0);
}

#[test]
fn an_open_transaction_can_still_be_committed() {
    let now = Instant::now();
    let (mut model, mut journal) = noting(1);
    let mut steps = Steps::begin(1, &mut model, now);
    let place = (orders(&model), 0);
    let producer = steps.new_producer(&mut model, now, Some("t"));
    let records = batch(2, Some((producer, 0, true)));
    steps.produce(&mut model, now, (place, records), Some("t"));
    journal.extend(model.take_entries());

    let mut model = restored(journal);
    model.finish_restore(now);
    let stable = |model: &Model| {
        model
            .topics
            .partition(place)
            .unwrap()
            .log
            .last_stable_offset()
    };
    assert_eq!(stable(&model), 0);
    let more = batch(2, Some((producer, 2, true)));
    let more = steps.produce(&mut model, now, (place, more), Some("t"));
    assert_eq!(more.base_offset, 2);
    steps.end(&mut model, now, ("t", producer), true);
    assert_eq!(stable(&model), 5);
    assert_eq!(
        model
            .topics
            .partition(place)
            .unwrap()
            .log
            .aborted(0, 5)
            .count(),
        0
    );
}

#[test]
fn leaders_have_a_new_epoch_and_a_partition_of_a_broker_that_is_no_more_has_another() {
    let now = Instant::now();
    let (mut model, mut journal) = noting(1);
    let id = model.create_topic("orders", 1, 1);
    model.move_leader((id, 0), sharegroup_wire::BrokerId(7));
    journal.extend(model.take_entries());
    let mut model = restored(journal);
    model.finish_restore(now);
    let partition = model.topics.partition((id, 0)).unwrap();
    assert_eq!((partition.leader.0, partition.leader_epoch), (1, 2));
}
