//! The HTTP sink against a server of the test's own.

mod access;
mod batches;
mod check;
mod network;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sharegroup_sink::config::{ConfigProblem, Properties, load_properties};
use sharegroup_sink::convert::{self, Chain, ConverterSettings, Converters};
use sharegroup_sink::{
    ConnectorConfig, Outcome, Outcomes, OwnedRecord, Registry, SinkBatch, SinkTask, TaskContext,
};
use sharegroup_testkit::http_server::{HttpServer, Reply};
use sharegroup_wire::TopicId;

use super::config::HttpConfig;
use super::{HttpConnector, HttpTask};

/// The settings of a connector file with these keys.
fn loaded(
    keys: &[(&str, &str)],
) -> Result<(ConnectorConfig, Vec<ConfigProblem>), Vec<ConfigProblem>> {
    let mut worker = Properties::new("worker.properties");
    worker.set("bootstrap.servers", "localhost:9092");
    worker.set("consumer.group.protocol", "share");
    let mut connector = Properties::new("http.properties");
    for (key, value) in [
        ("name", "web"),
        ("connector.class", "http"),
        ("topics", "orders"),
    ]
    .iter()
    .chain(keys)
    {
        connector.set(*key, *value);
    }
    let registry = Registry::new().with(HttpConnector);
    let mut loaded = load_properties(worker, vec![connector], true, &registry)?;
    Ok((loaded.connectors.remove(0), loaded.warnings))
}

fn config(keys: &[(&str, &str)]) -> HttpConfig {
    let (config, _) = loaded(keys).unwrap();
    HttpConfig::read(&config).unwrap().0
}

async fn task(keys: &[(&str, &str)]) -> HttpTask {
    let mut task = HttpTask::new(config(keys));
    task.start(&TaskContext::new("web", 0, 1, "connect-web"))
        .await
        .unwrap();
    task
}

/// A task that sends to a server, with more keys.
async fn task_to(server: &HttpServer, path: &str, keys: &[(&str, &str)]) -> HttpTask {
    let url = server.url(path);
    let keys: Vec<_> = [("http.url", url.as_str())]
        .iter()
        .chain(keys)
        .copied()
        .collect();
    task(&keys).await
}

fn record(offset: i64, value: &str) -> OwnedRecord {
    OwnedRecord {
        offset,
        key: Some(Bytes::from(format!("k{offset}"))),
        value: Some(Bytes::from(value.to_owned())),
        delivery_count: 1,
        ..OwnedRecord::default()
    }
}

fn batch(values: &[&str]) -> SinkBatch {
    let records = (0..)
        .zip(values)
        .map(|(offset, value)| record(offset, value));
    of_records(records.collect())
}

fn numbered(count: usize) -> SinkBatch {
    let values: Vec<_> = (0..count).map(|number| number.to_string()).collect();
    batch(&values.iter().map(String::as_str).collect::<Vec<_>>())
}

fn of_records(records: Vec<OwnedRecord>) -> SinkBatch {
    SinkBatch::from_records("orders", TopicId::ZERO, 3, records)
}

fn converted(batch: &SinkBatch, converter: &str) -> SinkBatch {
    let settings = ConverterSettings::from([("schemas.enable".to_owned(), "false".to_owned())]);
    let chain = Chain::of(Converters {
        key: convert::find("string", &settings).unwrap(),
        value: convert::find(converter, &settings).unwrap(),
        header: convert::find_header("simple", &settings).unwrap(),
    });
    batch.converted(&Arc::new(chain)).unwrap()
}

/// Outcomes of all records.
async fn put(task: &mut HttpTask, batch: SinkBatch) -> Vec<Outcome> {
    let outcomes = Outcomes::of(&batch);
    task.put(batch, &outcomes.sender()).await.unwrap();
    outcomes
        .take()
        .unwrap()
        .into_iter()
        .map(Option::unwrap)
        .collect()
}

fn reason(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Later { reason, .. }
        | Outcome::Refused { reason }
        | Outcome::Unknown { reason } => reason,
        _ => panic!("{outcome:?}"),
    }
}

fn is_later(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Later { .. })
}

fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused { .. })
}

fn is_unknown(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unknown { .. })
}

async fn echo() -> HttpServer {
    HttpServer::start(|_| Reply::status(200)).await
}

#[tokio::test]
async fn a_record_is_posted_as_it_is_with_what_names_it() {
    let server = echo().await;
    let mut task = task_to(&server, "/in", &[]).await;
    assert_eq!(put(&mut task, batch(&["a b"])).await, [Outcome::Written]);
    let seen = server.seen().remove(0);
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("POST", "/in")
    );
    assert_eq!(seen.text(), "a b");
    for (header, value) in [
        ("content-length", "3"),
        ("content-type", "application/octet-stream"),
        ("idempotency-key", "orders-3-0"),
    ] {
        assert_eq!(seen.header(header), Some(value), "{header}");
    }
    assert_eq!(seen.header("transfer-encoding"), None);
}

#[tokio::test]
async fn a_value_is_sent_as_its_converter_gives_it() {
    let server = echo().await;
    let mut task = task_to(&server, "/", &[("http.concurrency.max", "1")]).await;
    let json = batch(&[r#"{ "a" : 1.50 }"#]);
    for (batch, body, media_type) in [
        (
            converted(&json, "string"),
            r#"{ "a" : 1.50 }"#,
            "text/plain; charset=utf-8",
        ),
        (converted(&json, "json"), r#"{"a":1.5}"#, "application/json"),
        (json, r#"{ "a" : 1.50 }"#, "application/octet-stream"),
    ] {
        put(&mut task, batch).await;
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.text(), body);
        assert_eq!(seen.header("content-type"), Some(media_type));
    }
}

#[tokio::test]
async fn method_url_headers_and_body_take_parts_of_the_record() {
    let server = echo().await;
    let keys = [
        ("http.method", "${header.verb}"),
        ("http.headers", "X-Key: ${key} | X-Plain: a:b"),
        ("http.headers.content.type", "application/vnd.x+json"),
        ("http.body", r#"{"id": ${value.id}, "t": "${topic}"}"#),
    ];
    let mut task = task_to(&server, "/${topic}/${value.name}?o=${offset}", &keys).await;
    let record = OwnedRecord {
        headers: vec![("verb".to_owned(), Some(Bytes::from("put")))],
        ..record(7, r#"{"id": "5\"", "name": "../x y"}"#)
    };
    let batch = converted(&of_records(vec![record]), "json");
    assert_eq!(put(&mut task, batch).await, [Outcome::Written]);
    let seen = server.seen().remove(0);
    assert_eq!(seen.method, "PUT");
    assert_eq!(seen.target, "/orders/..%2Fx%20y?o=7");
    assert_eq!(seen.text(), r#"{"id": "5\"", "t": "orders"}"#);
    assert_eq!(seen.header("x-key"), Some("k7"));
    assert_eq!(seen.header("x-plain"), Some("a:b"));
    assert_eq!(seen.header("content-type"), Some("application/vnd.x+json"));
}

#[tokio::test]
async fn a_body_may_be_a_form_or_a_text() {
    let server = echo().await;
    for (escape, body, media_type) in [
        ("form", "k=a%26b&n=7", "application/x-www-form-urlencoded"),
        ("none", "k=a&b&n=7", "text/plain; charset=utf-8"),
    ] {
        let keys = [
            ("http.body", "k=${value.k}&n=${offset}"),
            ("http.body.escape", escape),
        ];
        let mut task = task_to(&server, "/", &keys).await;
        let record = record(7, r#"{"k": "a&b"}"#);
        put(&mut task, converted(&of_records(vec![record]), "json")).await;
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.text(), body);
        assert_eq!(seen.header("content-type"), Some(media_type));
    }
}

#[tokio::test]
async fn a_record_that_makes_no_request_is_refused_with_what_is_wrong() {
    let server = echo().await;
    let keys = [("http.headers", "X-V: ${value.h}")];
    let mut task = task_to(&server, "/a/${value.p}", &keys).await;
    let values = [
        r#"{"p": "..", "h": 1}"#,
        r#"{"p": "x", "h": "a\r\nEvil: 1"}"#,
        r#"{"h": 1}"#,
        r#"{"p": "x", "h": 1}"#,
    ];
    let outcomes = put(&mut task, converted(&batch(&values), "json")).await;
    for (outcome, text) in outcomes.iter().zip(["leave the path", "x-v", "value.p"]) {
        assert!(
            is_refused(outcome) && reason(outcome).contains(text),
            "{outcome:?}"
        );
    }
    assert_eq!(outcomes[3], Outcome::Written);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_null_value_is_what_the_key_says() {
    let server = echo().await;
    let tombstone = || {
        let value = None;
        of_records(vec![OwnedRecord {
            value,
            ..record(0, "")
        }])
    };
    for (choice, requests, method) in [
        ("send", 1, "POST"),
        ("delete", 2, "DELETE"),
        ("ignore", 2, "DELETE"),
    ] {
        let mut task = task_to(&server, "/", &[("behavior.on.null.values", choice)]).await;
        assert_eq!(put(&mut task, tombstone()).await, [Outcome::Written]);
        let seen = server.seen();
        assert_eq!(seen.len(), requests, "{choice}");
        let last = seen.last().unwrap();
        assert_eq!((last.method.as_str(), last.text().as_str()), (method, ""));
    }
    let mut task = task_to(&server, "/", &[("behavior.on.null.values", "fail")]).await;
    assert!(is_refused(&put(&mut task, tombstone()).await[0]));
}

/// Of the third record nothing good is said, and of the fourth not now.
#[tokio::test]
async fn b_070_one_refused_record_stops_no_other_and_a_wait_is_passed_on() {
    let server = HttpServer::start(|request| match request.text().as_str() {
        "2" => Reply::status(400).body("no\r\nsuch order"),
        "3" => Reply::status(429).header("retry-after", "2"),
        _ => Reply::status(201),
    })
    .await;
    let mut task = task_to(&server, "/", &[]).await;
    let outcomes = put(&mut task, numbered(5)).await;
    for written in [0, 1, 4] {
        assert_eq!(outcomes[written], Outcome::Written);
    }
    assert!(is_refused(&outcomes[2]));
    let text = reason(&outcomes[2]);
    assert!(
        text.contains("400") && text.contains("such order"),
        "{text}"
    );
    assert!(!text.contains('\n'), "{text}");
    let Outcome::Later { after, .. } = &outcomes[3] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(*after, Some(Duration::from_secs(2)));
}

/// Puts as many records as are asked for at a server that never answers, until it has seen so many requests.
async fn hangs(server: &HttpServer, keys: &[(&str, &str)], requests: usize) {
    let mut task = task_to(server, "/", keys).await;
    let batch = numbered(10 * requests);
    let outcomes = Outcomes::of(&batch);
    let sender = outcomes.sender();
    tokio::select! {
        _ = task.put(batch, &sender) => panic!("it can't end"),
        () = server.wait_for(requests) => {}
    }
}

#[tokio::test]
async fn as_many_requests_are_on_their_way_as_may_be() {
    for (start, requests) in [("64", 64), ("200", 64), ("3", 3)] {
        let server = HttpServer::start(|_| Reply::hang()).await;
        let keys = [
            ("http.concurrency.start", start),
            ("http.concurrency.max", "64"),
        ];
        hangs(&server, &keys, requests).await;
        assert_eq!(server.seen().len(), requests);
    }
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = echo().await;
    let mut task = task_to(&server, "/", &[("http.concurrency.max", "8")]).await;
    let outcomes = put(&mut task, numbered(400)).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Written));
    assert!(server.at_work_max() <= 8, "{}", server.at_work_max());
    // One may be opened while another becomes free.
    assert!(server.connections() <= 40, "{}", server.connections());
}

#[tokio::test]
async fn requests_go_one_after_the_other_where_that_is_wanted() {
    let server = echo().await;
    let mut task = task_to(&server, "/", &[("http.concurrency.max", "1")]).await;
    put(&mut task, numbered(20)).await;
    assert_eq!(server.at_work_max(), 1);
    let offsets: Vec<_> = server.seen().iter().map(|seen| seen.text()).collect();
    assert!(offsets.is_sorted_by_key(|text| text.parse::<u32>().unwrap()));
}

#[tokio::test]
async fn a_target_that_fails_only_is_not_sent_the_rest() {
    let server = HttpServer::start(|_| Reply::status(503).header("retry-after", "7")).await;
    let mut task = task_to(&server, "/", &[]).await;
    let outcomes = put(&mut task, numbered(1000)).await;
    assert!(outcomes.iter().all(is_later));
    assert!(reason(&outcomes[999]).contains("not sent"));
    let Outcome::Later { after, .. } = &outcomes[999] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(*after, Some(Duration::from_secs(7)));
    let sent = server.seen().len();
    assert!(sent <= 32, "{sent}");
}

#[tokio::test]
async fn a_few_failures_keep_no_record_from_being_sent() {
    let server = HttpServer::start(|request| match request.number % 20 {
        0 => Reply::status(503),
        _ => Reply::status(200),
    })
    .await;
    let mut task = task_to(&server, "/", &[]).await;
    let outcomes = put(&mut task, numbered(400)).await;
    assert_eq!(server.seen().len(), 400);
    assert_eq!(
        outcomes.iter().filter(|outcome| is_later(outcome)).count(),
        20
    );
}

#[tokio::test]
async fn lists_of_statuses_say_what_an_answer_means() {
    let server =
        HttpServer::start(|request| Reply::status(request.text().parse().unwrap_or(500))).await;
    let keys = [
        ("http.status.written", "200-299,409"),
        ("retry.on.status.codes", "404,500-"),
        ("http.concurrency.max", "1"),
    ];
    let mut task = task_to(&server, "/", &keys).await;
    let outcomes = put(&mut task, batch(&["409", "404", "408"])).await;
    assert_eq!(outcomes[0], Outcome::Written);
    assert!(is_later(&outcomes[1]) && is_refused(&outcomes[2]));
}
