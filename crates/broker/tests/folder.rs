//! A cluster's folder: what is in it after a restart, a crash, damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod steps;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sharegroup_broker::model::Model;
use sharegroup_broker::model::journal::Entry;
use sharegroup_broker::{Broker, BrokerBuilder, FolderError, StartError};
use sharegroup_wire::compress::Compression;
use sharegroup_wire::record::RecordBatchBuilder;
use steps::{Steps, orders};

/// Magic and format.
const HEADER_BYTES: usize = 12;

/// A folder of a test's own, removed at its end. It isn't among the system's temporary files, where anybody
/// may clean up between two starts.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> Self {
        let folder = format!("sharegroup-broker-{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        drop(fs::remove_dir_all(&path));
        Self(path)
    }

    fn broker(&self) -> BrokerBuilder {
        Broker::builder().in_memory().dir(&self.0)
    }

    fn journal(&self) -> Vec<u8> {
        fs::read(self.0.join("journal")).unwrap()
    }

    /// The folder as a process that is no more has left it.
    fn with_journal(name: &str, journal: &[u8]) -> Self {
        let dir = Self::new(name);
        fs::create_dir_all(&dir.0).unwrap();
        fs::write(dir.0.join("journal"), journal).unwrap();
        dir
    }

    /// Ends that were cut off its journal: each with where it was.
    fn cuts(&self) -> Vec<(usize, Vec<u8>)> {
        let files = fs::read_dir(&self.0).unwrap();
        let cut = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let at = name.strip_prefix("journal.cut-")?.split('-').next()?;
            Some((at.parse().unwrap(), fs::read(&path).unwrap()))
        };
        files.filter_map(|file| cut(file.unwrap().path())).collect()
    }

    /// What a broker finds in it.
    async fn recovered(&self) -> Result<Vec<Entry>, StartError> {
        let broker = self.broker().start().await?;
        Ok(broker.model(snapshot))
    }
}

/// The state, but for what every start changes.
fn snapshot(model: &mut Model) -> Vec<Entry> {
    for (place, loaded) in model
        .groups
        .values_mut()
        .flat_map(|group| &mut group.loaded)
    {
        let log = &model.topics.partition(*place).unwrap().log;
        loaded.partition.cut_front(log.start_offset());
    }
    let mut entries: Vec<Entry> = model.snapshot().collect();
    for entry in &mut entries {
        match entry {
            Entry::Topic { partitions, .. } => {
                for partition in partitions {
                    partition.leader_epoch = 0;
                }
            }
            Entry::Transaction { began_ms, .. } => *began_ms = (*began_ms).min(0),
            _ => {}
        }
    }
    entries
}

/// A journal after some steps, and the state at each of its lengths.
async fn written(seed: u64, count: u32) -> (Vec<u8>, Vec<(usize, Vec<Entry>)>) {
    let dir = TestDir::new(&format!("written-{seed}-{count}"));
    let broker = dir.broker().seed(seed).start().await.unwrap();
    let mut states = vec![(dir.journal().len(), broker.model(snapshot))];
    let mut now = Instant::now();
    let mut steps = None;
    for _ in 0..count {
        broker.model(|model| match &mut steps {
            None => steps = Some(Steps::begin(seed, model, now)),
            Some(steps) => steps.step(model, &mut now),
        });
        states.push((dir.journal().len(), broker.model(snapshot)));
    }
    (dir.journal(), states)
}

/// The last length up to `length`, and the state then.
fn state_at(states: &[(usize, Vec<Entry>)], length: usize) -> (usize, &[Entry]) {
    let whole = states.iter().rfind(|(at, _)| *at <= length);
    let (at, state) = whole.unwrap();
    (*at, state)
}

/// Where the damage is that a start was refused for.
fn damaged_at(refused: &StartError) -> u64 {
    match refused {
        StartError::Folder(FolderError::Damaged { position, .. }) => *position,
        other => panic!("{other}"),
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[tokio::test]
async fn a_second_broker_on_the_same_folder_is_refused_until_the_first_has_ended() {
    let dir = TestDir::new("lock");
    let first = dir.broker().topic("orders", 1).start().await.unwrap();
    let id = first.model(|model| model.topics.named("orders").unwrap().id);
    let refused = dir.broker().start().await.unwrap_err();
    assert!(
        matches!(&refused, StartError::Folder(FolderError::InUse(path)) if *path == dir.0),
        "{refused}"
    );
    drop(first);
    let second = dir.broker().topic("orders", 1).start().await.unwrap();
    let again = second.model(|model| model.topics.named("orders").unwrap().id);
    assert_eq!(again, id);
}

#[tokio::test]
async fn a_journal_cut_at_any_byte_gives_what_was_whole() {
    let (journal, states) = written(3, 8).await;
    let first = states.first().unwrap().0;
    for length in first..journal.len() {
        let dir = TestDir::with_journal("cut", &journal[..length]);
        let recovered = dir.recovered().await.unwrap();
        let (whole, state) = state_at(&states, length);
        assert!(recovered == state, "at {length}");
        let tail = &journal[whole..length];
        let kept = tail.iter().any(|byte| *byte != 0);
        let kept = kept.then(|| (whole, tail.to_vec()));
        assert!(dir.cuts() == Vec::from_iter(kept), "at {length}");
    }
    for length in 0..HEADER_BYTES {
        let dir = TestDir::with_journal("cut", &journal[..length]);
        assert_eq!(damaged_at(&dir.recovered().await.unwrap_err()), 0);
    }
}

#[tokio::test]
async fn zeros_behind_the_last_block_are_cut() {
    let (mut journal, states) = written(4, 6).await;
    let length = journal.len();
    journal.extend([0; 4096]);
    let dir = TestDir::with_journal("zeros", &journal);
    assert!(dir.recovered().await.unwrap() == state_at(&states, length).1);
    assert!(dir.cuts().is_empty());
}

/// As where a machine went down, and its disk had taken later writes first.
#[tokio::test]
async fn zeros_before_a_whole_block_refuse_the_start_and_nothing_is_changed() {
    let (mut journal, states) = written(4, 6).await;
    let start = states[0].0;
    journal[start..start + 20].fill(0);
    let dir = TestDir::with_journal("gap", &journal);
    let refused = dir.recovered().await.unwrap_err();
    assert_eq!(damaged_at(&refused), start as u64);
    assert!(dir.journal() == journal && dir.cuts().is_empty());
    let next = states.iter().find(|(at, _)| *at > start).unwrap().0;
    let (path, behind) = (dir.0.join("journal"), journal.len() - start);
    assert_eq!(
        refused.to_string(),
        format!(
            "{} is damaged at byte {start}: a block is not whole, and a whole one follows at byte {next}. \
             Nothing of it was changed; {behind} bytes are there from that byte on. Put a sound copy in its \
             place, or take another folder; or, to go on without what is there from that byte on, copy the \
             file and cut it: truncate -s {start}",
            path.display()
        )
    );
}

#[tokio::test]
async fn the_last_torn_ends_are_kept_and_no_more() {
    let (journal, _) = written(4, 6).await;
    let dir = TestDir::with_journal("ends", &journal);
    for round in 0..12 {
        let mut torn = dir.journal();
        torn.extend([0, 0, 1, 0, round]);
        fs::write(dir.0.join("journal"), torn).unwrap();
        dir.recovered().await.unwrap();
    }
    let mut rounds: Vec<u8> = dir.cuts().iter().map(|(_, end)| end[4]).collect();
    rounds.sort_unstable();
    assert_eq!(rounds, Vec::from_iter(4..12));
}

#[test]
fn flipped_bits_lose_the_last_block_at_most_and_never_abort() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (journal, states) = runtime.block_on(written(5, 12));
    let last = state_at(&states, journal.len() - 1).0;
    let flip = (any::<prop::sample::Index>(), 0..8_u8);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(128));
    let ran = runner.run(&flip, |(index, bit)| {
        let mut flipped = journal.clone();
        let index = index.index(journal.len());
        flipped[index] ^= 1 << bit;
        let dir = TestDir::with_journal("flip", &flipped);
        let recovered = runtime.block_on(dir.recovered());
        if index >= last {
            prop_assert!(recovered.unwrap() == state_at(&states, index).1);
            prop_assert!(dir.cuts() == [(last, flipped[last..].to_vec())]);
        } else {
            let refused = recovered.unwrap_err();
            prop_assert!(dir.journal() == flipped, "it is changed");
            if index >= states[0].0 {
                let (whole, _) = state_at(&states, index);
                prop_assert_eq!(damaged_at(&refused), whole as u64);
            }
        }
        Ok(())
    });
    ran.unwrap();
}

#[tokio::test]
async fn a_folder_of_a_later_format_is_refused() {
    let (mut journal, _) = written(6, 1).await;
    journal[HEADER_BYTES - 1] = 2;
    let dir = TestDir::with_journal("format", &journal);
    let refused = dir.recovered().await.unwrap_err().to_string();
    assert!(
        refused.ends_with("has format 2, this program knows formats up to 1"),
        "{refused}"
    );
    assert!(dir.journal() == journal, "nothing is written");
}

#[tokio::test]
async fn a_journal_that_was_being_made_does_not_count() {
    let (journal, states) = written(7, 8).await;
    let (other, _) = written(8, 8).await;
    for length in [0, 5, HEADER_BYTES, other.len() / 2, other.len()] {
        let dir = TestDir::with_journal("aside", &journal);
        fs::write(dir.0.join("journal.new"), &other[..length]).unwrap();
        let recovered = dir.recovered().await.unwrap();
        assert!(recovered == state_at(&states, journal.len()).1);
        assert!(!dir.0.join("journal.new").exists());
    }
}

#[tokio::test]
async fn a_journal_of_what_is_no_more_is_made_anew() {
    let dir = TestDir::new("compact");
    let broker = dir.broker().start().await.unwrap();
    let now = Instant::now();
    let mut steps = broker.model(|model| Steps::begin(9, model, now));
    let place = broker.model(|model| (orders(model), 0));
    let large = large_batch();
    let (mut lengths, mut written) = (Vec::new(), 0);
    while written < 30 << 20 {
        broker.model(|model| steps.produce(model, now, (place, large.clone()), None));
        written += large.len();
        lengths.push(dir.journal().len());
    }
    let longest = lengths.iter().max().unwrap();
    assert!(*longest < 5 << 20, "{longest} bytes");
    let was = broker.model(snapshot);
    drop(broker);
    assert!(dir.recovered().await.unwrap() == was);
}

fn large_batch() -> Bytes {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.push(1000, None, Some(&[7; 100_000]), []).unwrap();
    builder.build(0).unwrap()
}

#[tokio::test]
async fn leader_epochs_rise_with_each_restart() {
    let dir = TestDir::new("epochs");
    let mut epochs = Vec::new();
    for _ in 0..3 {
        let broker = dir.broker().topic("orders", 1).start().await.unwrap();
        let epoch = |model: &mut Model| {
            let place = (orders(model), 0);
            model.topics.partition(place).unwrap().leader_epoch
        };
        epochs.push(broker.model(epoch));
    }
    assert_eq!(epochs, [0, 1, 2]);
}

#[tokio::test]
async fn what_was_altered_at_run_time_stays_but_for_what_the_builder_says() {
    let dir = TestDir::new("configs");
    let broker = || dir.broker().group("g", "share.delivery.count.limit", "4");
    let first = broker().start().await.unwrap();
    first.model(|model| {
        let altered = [
            ("share.delivery.count.limit", "7"),
            ("share.isolation.level", "read_committed"),
        ];
        let altered = altered.map(|(key, value)| (key.to_owned(), value.to_owned()));
        model.set_group_values("g", altered.into());
    });
    drop(first);
    let second = broker().start().await.unwrap();
    let rules = second.model(|model| model.configs.group("g"));
    assert_eq!(
        (rules.limits.delivery_count_max, rules.read_committed),
        (4, true)
    );
}
