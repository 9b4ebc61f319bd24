//! Histories of keys by seed: their versions come in any order, some again and again, over several tasks at a time; of
//! each key the newest version is there at the end.

use std::collections::BTreeMap;

use super::*;

/// `SHAREGROUP_UPSERTS=20000` is `cargo xtask prove postgres-upserts`.
fn histories() -> u64 {
    let count = std::env::var("SHAREGROUP_UPSERTS");
    count.map_or(1_000, |text| text.parse().unwrap())
}

#[tokio::test]
async fn in_all_histories_the_newest_record_wins() {
    let database = Database::new("histories").await;
    database
        .run("CREATE TABLE orders (id text PRIMARY KEY, version int)")
        .await;
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        tasks.push(database.open(&[KEYED, UPSERT, &MARKED].concat()).await);
    }
    play(&database, &mut tasks, true).await;
}

#[tokio::test]
async fn in_all_histories_the_largest_version_wins() {
    let database = Database::new("versions").await;
    database
        .run("CREATE TABLE orders (id text PRIMARY KEY, version int, gone boolean)")
        .await;
    let by_field = [("version.field", "version")];
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        tasks.push(database.open(&[KEYED, UPSERT, &by_field].concat()).await);
    }
    play(&database, &mut tasks, false).await;
}

/// A record of a key.
#[derive(Clone, Debug)]
struct Version {
    key: String,
    partition: i32,
    offset: i64,
    timestamp: i64,
    /// None = its key has no row any more.
    version: Option<u32>,
}

/// What was produced, and what is delivered of it in which order.
struct History {
    seed: u64,
    produced: Vec<Version>,
    deliveries: Vec<Version>,
}

/// What the histories share: a topic.
#[derive(Default)]
struct Topic {
    ends: BTreeMap<i32, i64>,
    now: i64,
}

impl Topic {
    /// What one history produces of its keys: at first over few partitions, then over more, so that some keys move.
    fn produce(&mut self, seed: u64, deletes: bool) -> History {
        let mut random = Random(seed);
        let mut produced: Vec<Version> = Vec::new();
        for version in 0..VERSIONS {
            let partitions = if version < VERSIONS / 2 { 2 } else { 5 };
            let number = random.below(KEYS);
            // As a producer does it: a key has one partition as long as their number stays.
            let partition = i32::try_from((seed + number * 7) % partitions).unwrap();
            let key = format!("{seed}-{number}");
            let last = produced.iter().rfind(|last| last.key == key);
            // Of one partition the offsets decide, also where a timestamp is the same.
            let is_same = last.is_some_and(|last| last.partition == partition);
            if !is_same || random.below(2) == 0 {
                self.now += 1;
            }
            let offset = self.ends.entry(partition).or_default();
            produced.push(Version {
                key,
                partition,
                offset: *offset,
                timestamp: self.now,
                version: (!deletes || random.below(4) > 0).then_some(version),
            });
            *offset += 1;
        }
        // Each at least once, some twice or three times.
        let mut deliveries = produced.clone();
        for _ in 0..random.below(u64::from(2 * VERSIONS)) {
            let again = random.below(u64::from(VERSIONS));
            deliveries.push(produced[usize::try_from(again).unwrap()].clone());
        }
        for place in (1..deliveries.len()).rev() {
            let other = random.below(place as u64 + 1);
            deliveries.swap(place, usize::try_from(other).unwrap());
        }
        History {
            seed,
            produced,
            deliveries,
        }
    }
}

impl History {
    /// The keys' rows, as the table has to have them.
    fn wanted(&self) -> BTreeMap<&str, String> {
        let shown =
            |version: &Version| version.version.map_or("gone".to_owned(), |v| v.to_string());
        let rows = self
            .produced
            .iter()
            .map(|last| (last.key.as_str(), shown(last)));
        rows.collect()
    }
}

async fn play(database: &Database, tasks: &mut [PostgresTask], deletes: bool) {
    let mut topic = Topic::default();
    let histories: Vec<_> = (0..histories())
        .map(|seed| topic.produce(seed, deletes))
        .collect();
    let longest = histories
        .iter()
        .map(|history| history.deliveries.len())
        .max()
        .unwrap();
    for first in (0..longest).step_by(AT_ONCE) {
        let delivered = histories.iter().flat_map(|history| {
            let deliveries = history.deliveries.iter().skip(first).take(AT_ONCE);
            deliveries.map(|version| ((version.partition, version.offset), version))
        });
        // Of one partition in the order of offsets, each record once.
        let delivered: BTreeMap<_, _> = delivered.collect();
        let mut batches: BTreeMap<i32, Json> = BTreeMap::new();
        for ((partition, _), version) in delivered {
            let json = batches
                .entry(partition)
                .or_insert_with(|| Json::plain().partition(partition));
            json.records.push(record(version));
        }
        let mut batches: Vec<_> = batches.into_values().collect();
        while !batches.is_empty() {
            let at_once = batches.split_off(batches.len().saturating_sub(tasks.len()));
            let puts = tasks
                .iter_mut()
                .zip(at_once)
                .map(|(task, json)| failures::put_until_written(task, json));
            futures_util::future::join_all(puts).await;
        }
    }
    judge(database, &histories).await;
}

fn record(version: &Version) -> OwnedRecord {
    let number = version.version;
    let value = number.map(|number| format!(r#"{{"version":{number}}}"#).into());
    OwnedRecord {
        offset: version.offset,
        timestamp: version.timestamp,
        key: Some(format!("\"{}\"", version.key).into()),
        value,
        delivery_count: 2,
        ..OwnedRecord::default()
    }
}

async fn judge(database: &Database, histories: &[History]) {
    let rows = database
        .rows("SELECT id, CASE WHEN gone THEN 'gone' ELSE version::text END FROM orders")
        .await;
    let found: BTreeMap<_, _> = rows.iter().filter_map(|row| row.split_once('|')).collect();
    for history in histories {
        for (key, wanted) in history.wanted() {
            assert_eq!(
                found.get(key).copied(),
                Some(wanted.as_str()),
                "seed {}, key {key}: {:#?}",
                history.seed,
                history.deliveries
            );
        }
    }
    let keys: usize = histories.iter().map(|history| history.wanted().len()).sum();
    assert_eq!(found.len(), keys);
    println!("{} histories, {keys} keys", histories.len());
}

/// Numbers by seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

const KEYED: &[(&str, &str)] = &[("pk.mode", "record_key"), ("pk.fields", "id")];
const UPSERT: &[(&str, &str)] = &[("insert.mode", "upsert")];
const MARKED: [(&str, &str); 3] = [
    ("delete.enabled", "true"),
    ("delete.column", "gone"),
    ("auto.evolve", "true"),
];
const TASKS: usize = 3;
const KEYS: u64 = 3;
/// Of all keys of a history.
const VERSIONS: u32 = 12;
/// Deliveries of each history that come together.
const AT_ONCE: usize = 3;
