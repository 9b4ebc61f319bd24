//! Several records a request.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const BATCH: (&str, &str) = ("batch.max.size", "10");

#[tokio::test]
async fn records_go_as_an_array_or_as_lines() {
    let server = echo().await;
    for (format, body, media_type) in [
        ("json", "[1,{\"a\":2},3]", "application/json"),
        ("lines", "1\n{\"a\":2}\n3\n", "application/x-ndjson"),
    ] {
        let mut task = task_to(&server, "/", &[BATCH, ("batch.format", format)]).await;
        let outcomes = put(&mut task, batch(&["1", "{\"a\":2}", "3"])).await;
        assert_eq!(
            outcomes,
            [Outcome::Written, Outcome::Written, Outcome::Written]
        );
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.text(), body);
        assert_eq!(seen.header("content-type"), Some(media_type));
    }
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn a_record_without_a_value_is_null_in_an_array() {
    let server = echo().await;
    let mut task = task_to(&server, "/", &[BATCH]).await;
    let value = None;
    let tombstone = OwnedRecord {
        value,
        ..record(1, "")
    };
    let batch = of_records(vec![record(0, "1"), tombstone]);
    assert_eq!(
        put(&mut task, batch).await,
        [Outcome::Written, Outcome::Written]
    );
    assert_eq!(server.seen()[0].text(), "[1,null]");
}

#[tokio::test]
async fn a_batch_has_its_own_form_where_that_is_wanted() {
    let server = echo().await;
    let keys = [
        BATCH,
        ("batch.format", "lines"),
        ("batch.prefix", "<"),
        ("batch.separator", "\\n--\\n"),
        ("batch.suffix", ">"),
    ];
    let mut task = task_to(&server, "/", &keys).await;
    put(&mut task, batch(&["a", "b"])).await;
    assert_eq!(server.seen()[0].text(), "<a\n--\nb>");
}

#[tokio::test]
async fn records_that_would_break_a_batch_are_refused_alone() {
    let server = echo().await;
    for (format, bad) in [("json", "{\"a\":"), ("lines", "a\nb")] {
        let mut task = task_to(&server, "/", &[BATCH, ("batch.format", format)]).await;
        let outcomes = put(&mut task, batch(&["1", bad, "3"])).await;
        assert!(is_refused(&outcomes[1]), "{outcomes:?}");
        assert_eq!([&outcomes[0], &outcomes[2]], [&Outcome::Written; 2]);
    }
}

#[tokio::test]
async fn records_for_different_places_go_in_different_requests() {
    let server = echo().await;
    let mut task = task_to(&server, "/${value.to}", &[BATCH]).await;
    let values = [r#"{"to":"a"}"#, r#"{"to":"b"}"#, r#"{"to":"a"}"#];
    put(&mut task, converted(&batch(&values), "json")).await;
    let mut seen: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| (seen.target.clone(), seen.text()))
        .collect();
    seen.sort();
    assert_eq!(
        seen,
        [
            ("/a".to_owned(), r#"[{"to":"a"},{"to":"a"}]"#.to_owned()),
            ("/b".to_owned(), r#"[{"to":"b"}]"#.to_owned()),
        ]
    );
}

#[tokio::test]
async fn a_batch_has_bounds_of_records_and_bytes() {
    let server = echo().await;
    let keys = [BATCH, ("batch.max.bytes", "12")];
    let mut task = task_to(&server, "/", &keys).await;
    put(&mut task, batch(&["11111", "22222", "33333"])).await;
    put(&mut task, numbered(25)).await;
    let mut sizes: Vec<_> = server.seen().iter().map(|seen| seen.text().len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes[0], "[33333]".len().min(sizes[0]));
    assert!(sizes.iter().all(|size| *size <= 14), "{sizes:?}");
}

#[tokio::test]
async fn the_name_of_a_batch_tells_its_records() {
    let server = echo().await;
    let mut task = task_to(&server, "/", &[BATCH]).await;
    let of_offsets =
        |offsets: &[i64]| of_records(offsets.iter().map(|at| record(*at, "1")).collect());
    for offsets in [&[1, 2, 4][..], &[1, 3, 4], &[1, 2, 4], &[1]] {
        put(&mut task, of_offsets(offsets)).await;
    }
    let seen = server.seen();
    let names: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("idempotency-key").unwrap())
        .collect();
    assert!(names[0].starts_with("orders-3-1-4-"), "{names:?}");
    assert_eq!(names[0], names[2]);
    assert_ne!(names[0], names[1]);
    assert_eq!(names[3], "orders-3-1");
}

#[tokio::test]
async fn each_record_has_what_its_item_in_the_answer_says() {
    let server = HttpServer::start(|_| {
        Reply::status(200)
            .body(r#"{"items":[{"status":200},{"status":400,"error":"bad"},{"status":503}]}"#)
    })
    .await;
    let mut task = task_to(&server, "/", &[BATCH, ("batch.response.items", "/items")]).await;
    let outcomes = put(&mut task, numbered(3)).await;
    assert_eq!(outcomes[0], Outcome::Written);
    assert!(is_refused(&outcomes[1]) && reason(&outcomes[1]).ends_with("400 for the record: bad"));
    assert!(is_later(&outcomes[2]));
}

#[tokio::test]
async fn a_refused_batch_is_halved_until_the_record_to_blame_stands_alone() {
    let server = HttpServer::start(|request| match request.text().contains("666") {
        true => Reply::status(422).body("evil"),
        false => Reply::status(200),
    })
    .await;
    let mut task = task_to(&server, "/", &[BATCH]).await;
    let values = ["0", "1", "2", "3", "666", "5", "6", "7"];
    let outcomes = put(&mut task, batch(&values)).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        assert_eq!(is_refused(outcome), at == 4, "{at}: {outcome:?}");
    }
    // 8, two of 4, two of 2, two of 1.
    assert_eq!(server.seen().len(), 7);
}

#[tokio::test]
async fn a_batch_that_nobody_may_send_is_not_halved() {
    for (status, is_so) in [(403, is_later as fn(&Outcome) -> bool), (404, is_refused)] {
        let server = HttpServer::start(move |_| Reply::status(status)).await;
        let mut task = task_to(&server, "/", &[BATCH]).await;
        assert!(put(&mut task, numbered(8)).await.iter().all(is_so));
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_batch_that_fails_for_now_stays_whole() {
    let tries = AtomicUsize::new(0);
    let server = HttpServer::start(move |_| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::status(500),
        _ => Reply::status(200),
    })
    .await;
    let mut task = task_to(&server, "/", &[BATCH]).await;
    assert!(put(&mut task, numbered(8)).await.iter().all(is_later));
    put(&mut task, numbered(8)).await;
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(
        seen[0].header("idempotency-key"),
        seen[1].header("idempotency-key")
    );
}
