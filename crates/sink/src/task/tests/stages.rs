//! Converters and transformations in the loop: what they make reaches the sink, and what they can't take
//! harms no other record.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use tracing::Level;

use super::*;
use crate::convert::{
    Chain, ConvertedRecord, ConverterSettings, Converters, Stage, StageError, Transformation, find,
    find_header,
};
use crate::data::Value;
use crate::policy::{SetAside, StageRetries, Tolerance};
use crate::record::OwnedRecord;
use crate::task::ErrorLog;
use crate::testing::Lines;

fn converters(value: &str, settings: &[(&str, &str)]) -> Converters {
    let none = ConverterSettings::new();
    let setting = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Converters {
        key: find("string", &none).unwrap(),
        value: find(value, &settings.iter().map(setting).collect()).unwrap(),
        header: find_header("simple", &none).unwrap(),
    }
}

fn plain_json() -> Converters {
    converters("json", &[("schemas.enable", "false")])
}

/// What a transformation does to a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Does {
    Passes,
    Drops,
    Fails,
    /// Fails; another try may pass.
    FailsNow,
    FailsNowForEver,
}

/// Does to records what was told of their values, one thing at a time; all others pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Picky(Arc<Mutex<PickyState>>);

#[derive(Debug, Default)]
struct PickyState {
    told: BTreeMap<String, VecDeque<Does>>,
    /// When each value was seen.
    seen: BTreeMap<String, Vec<Instant>>,
    dropped: BTreeSet<i64>,
}

impl Picky {
    fn told(values: &[(&str, &[Does])]) -> Self {
        let picky = Self::default();
        values
            .iter()
            .for_each(|(value, does)| picky.tell(value, does));
        picky
    }

    pub(super) fn tell(&self, value: &str, does: &[Does]) {
        let told = does.iter().copied().collect();
        let mut state = self.0.lock().unwrap();
        state.told.insert(value.to_owned(), told);
    }

    /// What was dropped, where values are offsets.
    pub(super) fn dropped(&self) -> BTreeSet<i64> {
        self.0.lock().unwrap().dropped.clone()
    }

    fn seen(&self, value: &str) -> Vec<Instant> {
        let state = self.0.lock().unwrap();
        state.seen.get(value).cloned().unwrap_or_default()
    }

    pub(super) fn chain(&self) -> Arc<Chain> {
        let converters = converters("string", &[]);
        Arc::new(Chain::new(converters, vec![Box::new(self.clone())]))
    }
}

impl Transformation for Picky {
    fn apply(&self, record: ConvertedRecord) -> Result<Option<ConvertedRecord>, StageError> {
        let mut state = self.0.lock().unwrap();
        let Value::String(value) = &record.value.value else {
            return Ok(Some(record));
        };
        let seen = state.seen.entry(value.to_string()).or_default();
        seen.push(Instant::now());
        let told = state.told.get_mut(&**value);
        let does = told.and_then(|told| match told.front() {
            Some(Does::FailsNowForEver) => Some(Does::FailsNowForEver),
            _ => told.pop_front(),
        });
        let is_retriable = match does.unwrap_or(Does::Passes) {
            Does::Passes => return Ok(Some(record)),
            Does::Drops => {
                state.dropped.extend(value.parse::<i64>());
                return Ok(None);
            }
            Does::Fails => false,
            Does::FailsNow | Does::FailsNowForEver => true,
        };
        Err(StageError {
            stage: Stage::Transformation,
            class_name: "Picky".into(),
            error_class: "PickyError".into(),
            error: "not to my taste".into(),
            is_retriable,
        })
    }
}

/// A task that sets aside what fails.
fn tolerant(broker: &Broker, sink: SinkScript, letters: &LetterBox, chain: Arc<Chain>) -> Running {
    Running::start_beside(broker, sink, Some(letters), |settings| {
        settings.chain = chain;
        settings.failures.tolerance = Tolerance::All;
        settings.failures.set_aside = SetAside::DeadLetter;
    })
}

/// Stage, class and error of the letter at each offset.
fn stages(letters: &LetterBox) -> Vec<(i64, String)> {
    let letters = letters.offsets().into_iter().zip(letters.all());
    let told = letters.map(|(offset, letter)| (offset, letter.stage.unwrap().to_string()));
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    told
}

fn sorted(mut offsets: Vec<i64>) -> Vec<i64> {
    offsets.sort_unstable();
    offsets
}

/// What becomes of a batch of values: the values that the sink got, and the letters.
async fn through<V: Into<Bytes>>(
    converters: Converters,
    values: impl IntoIterator<Item = V>,
) -> (Vec<(i64, Value)>, Vec<(i64, String)>) {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver_values(values);
    let chain = Arc::new(Chain::of(converters));
    let running = tolerant(&broker, SinkScript::default(), &letters, chain);
    sleep(S).await;
    assert_eq!(running.shared.state(), TaskState::Running);
    let (broker, sink, status) = running.stop().await;
    let told = stages(&letters);
    let refused: Vec<_> = told.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(sorted(broker.rejected()), refused);
    assert!(broker.released().is_empty());
    assert_eq!(status.metrics.record_errors, refused.len() as u64);
    let got = sink.data().into_iter();
    let got: Vec<_> = got
        .map(|(offset, data)| (offset, data.value.value))
        .collect();
    assert_eq!(broker.accepted().len(), got.len());
    (got, told)
}

fn of_value_converter(told: &[(i64, String)]) {
    for (_, error) in told {
        assert!(
            error.starts_with("VALUE_CONVERTER (org.apache.kafka.connect.json.JsonConverter): ")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn b_083_plain_json_in_place_of_the_envelope_is_set_aside_naming_the_key() {
    let values = [
        r#"{"a":1}"#,
        r#"{"schema":{"type":"int32"},"payload":1,"x":0}"#,
        r#"{"payload":1,"schema":{"type":"int32"}}"#,
    ];
    let (got, told) = through(converters("json", &[]), values).await;
    assert_eq!(got, [(2, Value::Int32(1))]);
    assert_eq!(told.len(), 2);
    of_value_converter(&told);
    assert!(
        told.iter()
            .all(|(_, error)| error.contains("schemas.enable"))
    );
}

#[tokio::test(start_paused = true)]
async fn b_084_no_wrapped_value_reaches_the_sink() {
    let envelope = |type_of: &str, payload: &str| {
        format!(r#"{{"schema":{{"type":"{type_of}"}},"payload":{payload}}}"#)
    };
    let values = [
        envelope("int32", "3000000000"),
        envelope("int8", "300"),
        envelope("int64", "\"5\""),
    ];
    let (got, told) = through(converters("json", &[]), values).await;
    assert_eq!((got, told.len()), (Vec::new(), 3));
    of_value_converter(&told);
}

#[tokio::test(start_paused = true)]
async fn b_085_the_sink_gets_the_default_or_null_as_configured() {
    let text = r#"{"schema":{"type":"struct","fields":[{"field":"a","type":"int32","optional":true,"default":9}]},"payload":{"a":null}}"#;
    for (replace, expected) in [("true", Value::Int32(9)), ("false", Value::Null)] {
        let converters = converters("json", &[("replace.null.with.default", replace)]);
        let (got, told) = through(converters, [text]).await;
        let [(0, Value::Struct(row))] = got.as_slice() else {
            panic!("{got:?} {told:?}");
        };
        assert_eq!(row.values(), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn b_086_decimals_reach_the_sink_exactly() {
    let value = |payload: &str| {
        let decimal = r#"{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"}}"#;
        format!(r#"{{"schema":{decimal},"payload":{payload}}}"#)
    };
    let values = [value("\"AJw=\""), value("\"/w==\""), value("1.56")];
    let (got, told) = through(converters("json", &[]), values).await;
    let got: Vec<_> = got
        .iter()
        .map(|(_, value)| match value {
            Value::Decimal(decimal) => decimal.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(got, ["1.56", "-0.01", "1.56"], "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn b_090_the_sink_sees_null_and_the_key_of_a_tombstone() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver_records(vec![OwnedRecord {
        key: Some(Bytes::from_static(b"k")),
        delivery_count: 1,
        ..OwnedRecord::default()
    }]);
    let picky: Vec<Box<dyn Transformation>> = vec![Box::new(Picky::default())];
    let chain = Arc::new(Chain::new(plain_json(), picky));
    let running = tolerant(&broker, SinkScript::default(), &letters, chain);
    sleep(S).await;
    let (broker, sink, _) = running.stop().await;
    let data = sink.data();
    assert_eq!(data.len(), 1);
    assert_eq!(data[0].1.key.value, Value::from("k"));
    assert!(data[0].1.value.value.is_null());
    assert_eq!(broker.accepted(), [0]);
}

#[tokio::test(start_paused = true)]
async fn b_091_json_that_is_not_json_is_set_aside_and_json_null_is_put() {
    let values: [&'static [u8]; 8] = [
        br#"{"a":1} xyz"#,
        br#"{"x":1e400}"#,
        br#"{"x":NaN}"#,
        b"",
        b"null",
        &[0x22, 0xff, 0x22],
        b"7",
        b"\xef\xbb\xbf{}",
    ];
    let (got, told) = through(plain_json(), values).await;
    assert_eq!(got[..2], [(4, Value::Null), (6, Value::Int64(7))]);
    let refused: Vec<_> = told.iter().map(|(offset, _)| *offset).collect();
    assert!(refused.starts_with(&[0, 1, 2, 3, 5]), "{told:?}");
    of_value_converter(&told);
}

#[tokio::test(start_paused = true)]
async fn b_092_what_is_nested_too_deep_is_set_aside_and_the_task_goes_on() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let values = ["[".repeat(100_000), nested(200), "1".to_owned()];
    let (got, told) = through(plain_json(), values).await;
    let offsets: Vec<_> = got.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [1, 2]);
    assert_eq!(told.len(), 1);
    of_value_converter(&told);
}

#[tokio::test(start_paused = true)]
async fn b_093_the_sink_gets_the_schema_of_each_record_with_it() {
    let value = |fields: &str, payload: &str| {
        format!(r#"{{"schema":{{"type":"struct","fields":[{fields}]}},"payload":{payload}}}"#)
    };
    let a = r#"{"field":"a","type":"int32"}"#;
    let b = r#"{"field":"b","type":"string","optional":true}"#;
    let (one, two) = (
        value(a, r#"{"a":1}"#),
        value(&format!("{a},{b}"), r#"{"a":2}"#),
    );
    let wrong = value(a, r#"{"a":"x"}"#);
    let values = [one.clone(), two.clone(), wrong, one, two];
    let (got, told) = through(converters("json", &[]), values).await;
    let fields: Vec<_> = got
        .iter()
        .map(|(offset, value)| match value {
            Value::Struct(row) => (*offset, row.values().len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(fields, [(0, 1), (1, 2), (3, 1), (4, 2)]);
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn b_078_each_stage_has_its_letter_and_the_task_runs_on() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    let picky = Picky::told(&[("1", &[Does::Fails])]);
    let chain = Chain::new(
        Converters {
            value: find("string", &ConverterSettings::new()).unwrap(),
            key: find(
                "json",
                &[("schemas.enable".to_owned(), "false".to_owned())].into(),
            )
            .unwrap(),
            header: find_header("json", &ConverterSettings::new()).unwrap(),
        },
        vec![Box::new(picky)],
    );
    let record = |offset: i64, key: &'static str, header: Option<&'static str>| OwnedRecord {
        offset,
        key: Some(Bytes::from_static(key.as_bytes())),
        value: Some(Bytes::from(offset.to_string())),
        headers: header
            .map(|header| ("h".to_owned(), Some(Bytes::from_static(header.as_bytes()))))
            .into_iter()
            .collect(),
        delivery_count: 1,
        ..OwnedRecord::default()
    };
    broker.deliver_records(vec![
        record(0, "{bad", None),
        record(1, "1", None),
        record(2, "1", Some("{bad")),
        record(3, "1", None),
        record(4, "1", None),
    ]);
    let sink = SinkScript::default().poisoned([3], Step::Fatal);
    let running = tolerant(&broker, sink, &letters, Arc::new(chain));
    sleep(S).await;
    assert_eq!(running.shared.state(), TaskState::Running);
    let (broker, sink, status) = running.stop().await;
    let by_offset: BTreeMap<_, _> = letters.offsets().into_iter().zip(letters.all()).collect();
    let stages = by_offset.iter().map(|(offset, letter)| {
        let stage = letter.stage.as_ref().map(|error| error.stage);
        (*offset, stage)
    });
    assert_eq!(
        stages.collect::<Vec<_>>(),
        [
            (0, Some(Stage::KeyConverter)),
            (1, Some(Stage::Transformation)),
            (2, Some(Stage::HeaderConverter)),
            (3, None),
        ]
    );
    assert!(
        by_offset[&1]
            .error
            .starts_with("orders-3 offset 1: TRANSFORMATION (Picky): ")
    );
    assert_eq!(sink.written(), [4]);
    assert_eq!(broker.accepted(), [4]);
    assert_eq!(sorted(broker.rejected()), [0, 1, 2, 3]);
    assert_eq!(
        (status.metrics.record_errors, status.metrics.records_skipped),
        (4, 4)
    );
}

#[tokio::test(start_paused = true)]
async fn without_tolerance_a_bad_record_fails_the_task_naming_it_and_the_others_are_written() {
    let broker = Broker::default();
    broker.deliver_values(["1", "{bad", "3"]);
    let running = Running::start_with(&broker, SinkScript::default(), |settings| {
        settings.chain = Arc::new(Chain::of(plain_json()));
    });
    let (broker, sink, status) = running.ended().await;
    assert_eq!(status.state, TaskState::Failed);
    let trace = status.trace.unwrap();
    for part in [
        "orders-3 offset 1",
        "VALUE_CONVERTER",
        "JsonConverter",
        "not JSON at byte 1",
    ] {
        assert!(trace.contains(part), "{trace}");
    }
    assert_eq!(
        (sink.written(), broker.accepted()),
        (vec![0, 2], vec![0, 2])
    );
    assert_eq!((broker.released(), broker.rejected()), (vec![1], vec![]));
}

#[tokio::test(start_paused = true)]
async fn without_a_letter_topic_a_bad_record_is_named_and_rejected() {
    let file = std::env::temp_dir().join(format!("stages-lost-{}", std::process::id()));
    drop(std::fs::remove_file(&file));
    let broker = Broker::default();
    broker.deliver_values(["1", "{bad", "3"]);
    let running = Running::start_with(&broker, SinkScript::default(), |settings| {
        settings.chain = Arc::new(Chain::of(plain_json()));
        settings.failures.tolerance = Tolerance::All;
        settings.loss.file = Some(file.clone());
    });
    sleep(S).await;
    let (broker, sink, status) = running.stop().await;
    assert_eq!(status.state, TaskState::Stopped);
    assert_eq!((sink.written(), broker.rejected()), (vec![0, 2], vec![1]));
    assert_eq!(status.metrics.named_as_lost, 1);
    let lost = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(lost.lines().count(), 1);
    assert!(
        lost.contains(r#""offset":1,"#) && lost.contains("VALUE_CONVERTER"),
        "{lost}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_is_converted_once_however_often_it_is_put() {
    let broker = Broker::default();
    broker.deliver_values(["a", "b", "c"]);
    let picky = Picky::default();
    let sink = SinkScript::puts(vec![Step::Fails; 12]);
    let running = Running::start_with(&broker, sink, |settings| settings.chain = picky.chain());
    sleep(60 * S).await;
    let (broker, sink, _) = running.stop().await;
    assert!(sink.put_offsets().len() > 6);
    for value in ["a", "b", "c"] {
        assert_eq!(picky.seen(value).len(), 1, "{value}");
    }
    assert_eq!(sorted(broker.accepted()), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn what_a_transformation_drops_is_accepted_and_never_put() {
    let broker = Broker::default();
    broker.deliver_values(["a", "b", "c", "d"]);
    let picky = Picky::told(&[("a", &[Does::Drops]), ("c", &[Does::Drops])]);
    let running = Running::start_with(&broker, SinkScript::puts([Step::Slow(S)]), |settings| {
        settings.chain = picky.chain();
    });
    sleep(500 * MS).await;
    assert_eq!(broker.accepted(), [0, 2]);
    sleep(S).await;
    let (broker, sink, status) = running.stop().await;
    assert_eq!(sink.put_offsets(), [vec![1, 3]]);
    assert_eq!(broker.accepted(), [0, 2, 1, 3]);
    assert_eq!((status.counters.read, status.counters.written), (4, 2));
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_recovers_within_the_time_holds_only_its_record_back() {
    let broker = Broker::default();
    broker.deliver_values(["a", "b", "c"]);
    let picky = Picky::told(&[("b", &[Does::FailsNow, Does::FailsNow])]);
    let running = Running::start_with(&broker, SinkScript::default(), |settings| {
        settings.chain = picky.chain();
        settings.failures.stage_retries.timeout = Some(10 * S);
    });
    sleep(200 * MS).await;
    assert_eq!(broker.accepted(), [0, 2]);
    sleep(2 * S).await;
    let (broker, sink, status) = running.stop().await;
    assert_eq!(sink.put_offsets(), [vec![0, 2], vec![1]]);
    assert_eq!(broker.accepted(), [0, 2, 1]);
    let waits: Vec<_> = picky
        .seen("b")
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_millis())
        .collect();
    // Timers of tokio are a millisecond coarse.
    assert!(
        waits[0].abs_diff(300) <= 1 && waits[1].abs_diff(600) <= 1,
        "{waits:?}"
    );
    assert_eq!(
        (status.metrics.retries, status.metrics.record_errors),
        (2, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_fails_for_longer_than_the_time_gives_its_record_up() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver_values(["a", "b"]);
    let picky = Picky::told(&[("b", &[Does::FailsNowForEver])]);
    let running =
        Running::start_beside(&broker, SinkScript::default(), Some(&letters), |settings| {
            settings.chain = picky.chain();
            settings.failures.tolerance = Tolerance::All;
            settings.failures.set_aside = SetAside::DeadLetter;
            settings.failures.stage_retries = StageRetries {
                timeout: Some(2 * S),
                delay_max: 700 * MS,
            };
        });
    sleep(1900 * MS).await;
    assert!(letters.offsets().is_empty());
    sleep(S).await;
    let (broker, _, status) = running.stop().await;
    assert_eq!((letters.offsets(), broker.rejected()), (vec![1], vec![1]));
    let seen = picky.seen("b");
    let whole = (*seen.last().unwrap() - seen[0]).as_millis();
    assert!((2000..2010).contains(&whole), "{whole}");
    assert_eq!(status.metrics.retries, seen.len() as u64 - 1);
}

#[tokio::test(start_paused = true)]
async fn retries_without_end_are_held_as_long_as_other_records_allow() {
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver_values(["b"]);
    let picky = Picky::told(&[("b", &[Does::FailsNowForEver])]);
    let running =
        Running::start_beside(&broker, SinkScript::default(), Some(&letters), |settings| {
            settings.chain = picky.chain();
            settings.failures.tolerance = Tolerance::All;
            settings.failures.set_aside = SetAside::DeadLetter;
            settings.failures.stage_retries.timeout = None;
        });
    // Alone it waits.
    sleep(3600 * S).await;
    assert!(letters.offsets().is_empty());
    for offset in 1..700 {
        broker.deliver(offset..offset + 1, 1);
        sleep(S).await;
    }
    let (broker, _, _) = running.stop().await;
    assert_eq!((letters.offsets(), broker.rejected()), (vec![0], vec![0]));
    assert!(letters.all()[0].stage.is_some());
}

#[tokio::test(start_paused = true)]
async fn bytes_that_nobody_looks_into_reach_the_sink_without_a_copy() {
    let value = Bytes::from(vec![0xff; 100]);
    let broker = Broker::default();
    broker.deliver_values([value.clone()]);
    let running = Running::start(&broker, SinkScript::default());
    sleep(S).await;
    let (_, sink, _) = running.stop().await;
    let data = sink.data();
    let Value::Bytes(passed) = &data[0].1.value.value else {
        panic!("{data:?}");
    };
    assert_eq!(passed.as_ptr(), value.as_ptr());
}

/// The lines of records that failed, in a task with that log.
async fn logged(log: ErrorLog) -> Vec<String> {
    let lines = Lines::of(Level::ERROR);
    let _guard = lines.keep();
    let broker = Broker::default();
    let letters = LetterBox::beside(&broker);
    broker.deliver_values(["1", "{secret", "3"]);
    let sink = SinkScript::default().poisoned([2], Step::Fatal);
    let running = Running::start_beside(&broker, sink, Some(&letters), |settings| {
        settings.chain = Arc::new(Chain::of(plain_json()));
        settings.failures.tolerance = Tolerance::All;
        settings.failures.set_aside = SetAside::DeadLetter;
        settings.failures.log = log;
    });
    sleep(S).await;
    let (_, _, status) = running.stop().await;
    assert_eq!(letters.offsets().len(), 2);
    let lines = lines.all();
    assert!(
        !lines.iter().any(|line| line.contains("secret")),
        "{lines:?}"
    );
    let failed = lines.into_iter();
    let failed: Vec<_> = failed
        .filter(|line| line.contains("A record failed."))
        .collect();
    assert_eq!(status.metrics.errors_logged, failed.len() as u64);
    failed
}

#[tokio::test(start_paused = true)]
async fn each_record_that_fails_has_a_line_where_one_is_wanted() {
    assert!(logged(ErrorLog::Off).await.is_empty());
    let lines = logged(ErrorLog::Failures).await;
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("stage=VALUE_CONVERTER"), "{lines:?}");
    assert!(
        lines[0].contains("class=org.apache.kafka.connect.json.JsonConverter"),
        "{lines:?}"
    );
    assert!(
        !lines[0].contains("offset=") && !lines[0].contains("orders"),
        "{lines:?}"
    );
    assert!(lines[1].contains("stage=TASK_PUT"), "{lines:?}");
    let lines = logged(ErrorLog::WithRecords).await;
    for part in ["topic=\"orders\"", "partition=3", "offset=1", "timestamp=0"] {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
}
