//! What becomes of rows by `insert.mode` and `pk.mode`.

use super::*;

const PLACE: &str = "__connect_topic text, __connect_topic_id uuid, __connect_partition int, __connect_offset bigint, \
    PRIMARY KEY (__connect_topic_id, __connect_partition, __connect_offset)";
const UPSERT: &[(&str, &str)] = &[
    ("insert.mode", "upsert"),
    ("pk.mode", "record_key"),
    ("pk.fields", "id"),
    ("auto.evolve", "true"),
];

fn rows(first: i64, count: i64) -> Json {
    (first..first + count).fold(Json::plain(), |json, offset| {
        json.value(offset, &format!(r#"{{"id":{offset},"name":"n{offset}"}}"#))
    })
}

#[tokio::test]
async fn what_is_delivered_twice_is_one_row() {
    let database = Database::new("twice").await;
    database
        .run(&format!("CREATE TABLE orders (id int, name text, {PLACE})"))
        .await;
    let mut task = database.open(&[]).await;
    write(&mut task, rows(0, 10)).await;
    // Once known as a redelivery, once not.
    write(&mut task, rows(5, 10).redelivered()).await;
    write(&mut task, rows(5, 15)).await;
    let found = database
        .rows("SELECT count(*), count(DISTINCT id), max(name) FROM orders")
        .await;
    assert_eq!(found, ["20|20|n9"]);
    // The same offsets of a topic that was made anew are other records.
    let anew = Json {
        topic_id: TopicId([8; 16]),
        ..rows(0, 3)
    };
    write(&mut task, anew).await;
    assert_eq!(database.rows("SELECT count(*) FROM orders").await, ["23"]);
}

#[tokio::test]
async fn a_table_without_the_topics_id_is_refused_with_what_to_do() {
    let database = Database::new("noid").await;
    database.run("CREATE TABLE orders (id int, __connect_topic text, __connect_partition int, __connect_offset bigint, PRIMARY KEY (__connect_topic, __connect_partition, __connect_offset))").await;
    let error = start(&mut database.task(&[]))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("ALTER TABLE \"orders\" ADD COLUMN \"__connect_topic_id\" uuid"),
        "{error}"
    );
    let error = start(&mut database.task(&[("table.name.format", "missing")]))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("auto.create=true"), "{error}");
}

#[tokio::test]
async fn rows_without_a_key_are_copied() {
    let database = Database::new("nokey").await;
    database
        .run("CREATE SCHEMA s; CREATE TABLE s.orders_x (\"ID\" int, name varchar(9))")
        .await;
    let extra = [
        ("pk.mode", "none"),
        ("table.name.format", "s.${topic}_x"),
        ("fields.exclude.list", "id"),
    ];
    let mut task = database.open(&extra).await;
    write(&mut task, rows(0, 7)).await;
    assert_eq!(
        database
            .rows("SELECT count(*), count(\"ID\") FROM s.orders_x")
            .await,
        ["7|0"]
    );
}

#[tokio::test]
async fn a_row_that_is_there_is_told_from_another_with_its_key() {
    let database = Database::new("insertkey").await;
    database.run("CREATE TABLE orders (id int PRIMARY KEY, name text); INSERT INTO orders VALUES (1, 'n1'), (2, 'x')").await;
    let mut task = database
        .open(&[("pk.mode", "record_value"), ("pk.fields", "id")])
        .await;
    let (result, outcomes) = put(&mut task, rows(0, 4).batch()).await;
    result.unwrap();
    assert_eq!(letters(&outcomes), "wwrw");
    assert_eq!(
        database.rows("SELECT * FROM orders ORDER BY id").await,
        ["0|n0", "1|n1", "2|x", "3|n3"]
    );
}

#[tokio::test]
async fn b_061_of_one_key_in_one_batch_the_newest_counts() {
    let database = Database::new("samekey").await;
    database
        .run("CREATE TABLE orders (id text PRIMARY KEY, v int)")
        .await;
    let mut task = database.open(UPSERT).await;
    let batch = Json::plain()
        .record(1, Some(r#""k1""#), Some(r#"{"v":1}"#))
        .record(2, Some(r#""k2""#), Some(r#"{"v":1}"#))
        .record(3, Some(r#""k1""#), Some(r#"{"v":2}"#));
    write(&mut task, batch).await;
    let found = database.rows("SELECT id, v FROM orders ORDER BY id").await;
    assert_eq!(found, ["k1|2", "k2|1"]);
}

#[tokio::test]
async fn b_062_an_older_record_does_not_replace_a_newer_one() {
    let database = Database::new("older").await;
    database
        .run("CREATE TABLE orders (id text PRIMARY KEY, v int)")
        .await;
    let mut task = database.open(UPSERT).await;
    let record = |offset, v: &str| {
        Json::plain().record(offset, Some(r#""k""#), Some(&format!(r#"{{"v":{v}}}"#)))
    };
    write(&mut task, record(5, "5")).await;
    write(&mut task, record(4, "4")).await;
    assert_eq!(database.rows("SELECT v FROM orders").await, ["5"]);
    write(&mut task, record(6, "6")).await;
    // Another partition: the timestamp counts.
    write(&mut task, record(3, "3").partition(1)).await;
    assert_eq!(database.rows("SELECT v FROM orders").await, ["6"]);
    write(&mut task, record(9, "9").partition(1)).await;
    assert_eq!(
        database
            .rows("SELECT v, __connect_partition FROM orders")
            .await,
        ["9|1"]
    );
}

#[tokio::test]
async fn the_users_own_field_may_say_which_record_is_newer() {
    let database = Database::new("version").await;
    database
        .run("CREATE TABLE orders (id text PRIMARY KEY, v int, name text)")
        .await;
    let extra = [
        ("insert.mode", "upsert"),
        ("pk.mode", "record_key"),
        ("pk.fields", "id"),
        ("version.field", "v"),
    ];
    let mut task = database.open(&extra).await;
    let record = |json: Json, offset, v, name| {
        json.record(
            offset,
            Some(r#""k""#),
            Some(&format!(r#"{{"v":{v},"name":"{name}"}}"#)),
        )
    };
    write(
        &mut task,
        record(record(Json::plain(), 1, 7, "a"), 2, 3, "b"),
    )
    .await;
    assert_eq!(database.rows("SELECT v, name FROM orders").await, ["7|a"]);
    write(
        &mut task,
        record(record(Json::plain(), 3, 6, "c"), 4, 7, "d"),
    )
    .await;
    assert_eq!(database.rows("SELECT v, name FROM orders").await, ["7|d"]);
    let missing = Json::plain().record(5, Some(r#""k""#), Some(r#"{"name":"e"}"#));
    let (result, outcomes) = put(&mut task, missing.batch()).await;
    result.unwrap();
    assert_eq!(letters(&outcomes), "r");
}

#[tokio::test]
async fn b_090_null_values_delete_or_are_refused_or_left_out() {
    let database = Database::new("nulls").await;
    database
        .run("CREATE TABLE orders (id text PRIMARY KEY, v int)")
        .await;
    let batch = || {
        Json::plain()
            .record(1, Some(r#""a""#), Some(r#"{"v":1}"#))
            .record(2, Some(r#""b""#), Some(r#"{"v":1}"#))
            .record(3, Some(r#""a""#), None)
    };
    let mut task = database.open(UPSERT).await;
    let (_, outcomes) = put(&mut task, batch().batch()).await;
    assert_eq!(letters(&outcomes), "wwr");
    let mut task = database
        .open(&[UPSERT, &[("behavior.on.null.values", "ignore")]].concat())
        .await;
    write(&mut task, batch()).await;
    assert_eq!(
        database.rows("SELECT id FROM orders ORDER BY id").await,
        ["a", "b"]
    );
    let mut task = database
        .open(&[UPSERT, &[("delete.enabled", "true")]].concat())
        .await;
    write(&mut task, batch()).await;
    assert_eq!(database.rows("SELECT id FROM orders").await, ["b"]);
    // One that is older than the row deletes nothing.
    write(
        &mut task,
        Json::plain().record(9, Some(r#""b""#), Some(r#"{"v":9}"#)),
    )
    .await;
    write(&mut task, Json::plain().record(8, Some(r#""b""#), None)).await;
    assert_eq!(database.rows("SELECT id, v FROM orders").await, ["b|9"]);
}

#[tokio::test]
async fn update_changes_rows_that_are_there_and_no_others() {
    let database = Database::new("updates").await;
    database.run("CREATE TABLE orders (id int PRIMARY KEY, name text); INSERT INTO orders VALUES (1, 'x'), (9, 'x')").await;
    let extra = [
        ("insert.mode", "update"),
        ("pk.mode", "record_value"),
        ("pk.fields", "id"),
        ("version.guard", "false"),
    ];
    let mut task = database.open(&extra).await;
    let repeated = rows(0, 3).value(7, r#"{"id":1,"name":"last"}"#);
    write(&mut task, repeated).await;
    assert_eq!(
        database.rows("SELECT * FROM orders ORDER BY id").await,
        ["1|last", "9|x"]
    );
}

const SCHEMA: &str = r#"{"type":"struct","fields":[{"field":"id","type":"int64"},{"field":"name","type":"string","optional":true}MORE]}"#;

fn with_schema(more: &str, payload: &str) -> String {
    format!(
        r#"{{"schema":{},"payload":{payload}}}"#,
        SCHEMA.replace("MORE", more)
    )
}

#[tokio::test]
async fn b_093_tables_are_made_and_grow_with_the_schema() {
    let database = Database::new("grows").await;
    let mut task = database
        .open(&[("auto.create", "true"), ("auto.evolve", "true")])
        .await;
    let more = r#",{"field":"at","type":"int64","name":"org.apache.kafka.connect.data.Timestamp","version":1,"optional":true}"#;
    let batch = Json::with_schemas()
        .value(0, &with_schema("", r#"{"id":1,"name":"a"}"#))
        .value(1, &with_schema(more, r#"{"id":2,"name":null,"at":0}"#))
        .value(2, &with_schema("", r#"{"id":3,"name":"c"}"#));
    write(&mut task, batch).await;
    let found = database
        .rows("SELECT id, name, at, __connect_topic, __connect_offset FROM orders ORDER BY id")
        .await;
    assert_eq!(
        found,
        [
            "1|a|NULL|orders|0",
            "2|NULL|1970-01-01 00:00:00+00|orders|1",
            "3|c|NULL|orders|2"
        ]
    );
    let nullable = "SELECT attname FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0 AND NOT attnotnull ORDER BY 1";
    assert_eq!(
        database.rows(nullable).await,
        ["__connect_topic", "at", "name"]
    );
    // Without leave to add columns only the record that needs one is refused.
    let mut task = database.open(&[]).await;
    let batch = Json::with_schemas()
        .value(3, &with_schema("", r#"{"id":4,"name":"a"}"#))
        .value(
            4,
            &with_schema(
                r#",{"field":"x","type":"int8"}"#,
                r#"{"id":5,"name":"a","x":1}"#,
            ),
        );
    let (result, outcomes) = put(&mut task, batch.batch()).await;
    result.unwrap();
    assert_eq!(letters(&outcomes), "wr");
}

#[tokio::test]
async fn tasks_that_make_one_table_at_the_same_time_do_not_fail() {
    let database = Database::new("race").await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        tasks.push(database.open(&[("auto.create", "true")]).await);
    }
    let tasks = tasks.into_iter().zip(0..).map(|(mut task, number)| {
        tokio::spawn(async move {
            let json = Json::with_schemas()
                .partition(number)
                .value(0, &with_schema("", r#"{"id":1,"name":"a"}"#));
            write(&mut task, json).await;
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(database.rows("SELECT count(*) FROM orders").await, ["6"]);
}

#[tokio::test]
async fn a_value_may_be_one_column() {
    let database = Database::new("whole").await;
    let mut task = database
        .open(&[("auto.create", "true"), ("value.column", "doc")])
        .await;
    let batch = Json::plain()
        .value(0, r#"{"a":[1,null]}"#)
        .value(1, "7")
        .record(2, None, None);
    write(&mut task, batch).await;
    let found = database
        .rows("SELECT __connect_offset, doc FROM orders ORDER BY 1")
        .await;
    assert_eq!(found, [r#"0|{"a": [1, null]}"#, "1|7", "2|NULL"]);
}

#[tokio::test]
async fn large_values_are_spread_over_several_statements() {
    let database = Database::new("large").await;
    database.run("CREATE TABLE orders (id int, name text); CREATE TABLE seen (n int); \
        CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO seen SELECT count(*) FROM added; RETURN NULL; END'; \
        CREATE TRIGGER see AFTER INSERT ON orders REFERENCING NEW TABLE AS added EXECUTE FUNCTION see()").await;
    let mut task = database.open(&[("pk.mode", "none")]).await;
    let megabytes = "x".repeat(3 << 20);
    let batch = (0..10).fold(Json::plain(), |json, id| {
        json.value(id, &format!(r#"{{"id":{id},"name":"{megabytes}"}}"#))
    });
    write(&mut task, batch).await;
    assert_eq!(database.rows("SELECT n FROM seen").await, ["6", "4"]);
}

#[tokio::test]
async fn a_redelivered_row_is_known_again_though_its_column_rounds() {
    let database = Database::new("rounds").await;
    database.run("CREATE TABLE orders (id int PRIMARY KEY, name char(5), amount numeric(5,1), at timestamp(0))").await;
    let mut task = database
        .open(&[("pk.mode", "record_value"), ("pk.fields", "id")])
        .await;
    let batch = || {
        Json::plain().value(
            0,
            r#"{"id":1,"name":"a","amount":2.25,"at":"2025-03-05 04:33:45.8"}"#,
        )
    };
    write(&mut task, batch()).await;
    write(&mut task, batch().redelivered()).await;
}

#[tokio::test]
async fn a_table_without_an_index_over_the_key_is_refused_at_the_start() {
    let database = Database::new("noindex").await;
    database
        .run("CREATE TABLE orders (id int, name text)")
        .await;
    let error = start(&mut database.task(UPSERT))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("CREATE UNIQUE INDEX ON \"orders\" (\"id\")"),
        "{error}"
    );
}

#[tokio::test]
async fn a_row_that_is_marked_as_deleted_is_not_brought_back_by_an_older_record() {
    let database = Database::new("marked").await;
    database
        .run("CREATE TABLE orders (id text PRIMARY KEY, v int)")
        .await;
    let extra = [("delete.enabled", "true"), ("delete.column", "gone")];
    let mut task = database.open(&[UPSERT, &extra].concat()).await;
    let record = |offset, v: i32| {
        Json::plain().record(offset, Some(r#""k""#), Some(&format!(r#"{{"v":{v}}}"#)))
    };
    let null = |json: Json, offset| json.record(offset, Some(r#""k""#), None);
    write(&mut task, null(record(2, 2), 3)).await;
    write(&mut task, record(1, 1)).await;
    assert_eq!(database.rows("SELECT v, gone FROM orders").await, ["2|t"]);
    write(&mut task, record(4, 4)).await;
    assert_eq!(database.rows("SELECT v, gone FROM orders").await, ["4|f"]);
    // One whose record never came, or comes later.
    write(&mut task, Json::plain().record(9, Some(r#""x""#), None)).await;
    write(
        &mut task,
        Json::plain().record(8, Some(r#""x""#), Some(r#"{"v":8}"#)),
    )
    .await;
    assert_eq!(
        database
            .rows("SELECT v, gone FROM orders WHERE id = 'x'")
            .await,
        ["NULL|t"]
    );
}
