//! Every type, into columns of every type that takes it.

use super::*;

/// Puts one value with its schema into a column of a type; what the database shows then.
async fn shown(database: &Database, column: &str, schema: &str, payload: &str) -> String {
    database
        .run(&format!(
            "DROP TABLE IF EXISTS orders; CREATE TABLE orders (v {column})"
        ))
        .await;
    let mut task = database.open(&[("pk.mode", "none")]).await;
    let value = match schema {
        "" => format!(r#"{{"v":{payload}}}"#),
        schema => format!(
            r#"{{"schema":{{"type":"struct","fields":[{{"field":"v","optional":true,{schema}}}]}},"payload":{{"v":{payload}}}}}"#
        ),
    };
    let json = if schema.is_empty() {
        Json::plain()
    } else {
        Json::with_schemas()
    };
    let (result, outcomes) = put(&mut task, json.value(0, &value).batch()).await;
    result.unwrap();
    match outcomes.first() {
        Some(Some(Outcome::Refused { reason })) => format!("refused: {reason}"),
        _ => database.rows("SELECT v FROM orders").await.remove(0),
    }
}

macro_rules! connect {
    ($type:literal, $name:literal) => {
        concat!(
            r#""type":""#,
            $type,
            r#"","name":"org.apache.kafka.connect.data."#,
            $name,
            r#"","version":1"#
        )
    };
}
macro_rules! debezium {
    ($type:literal, $name:literal) => {
        concat!(
            r#""type":""#,
            $type,
            r#"","name":"io.debezium."#,
            $name,
            r#"","version":1"#
        )
    };
}

#[tokio::test]
async fn every_type_with_a_schema_goes_into_its_columns() {
    let database = Database::new("types").await;
    let decimal = concat!(
        connect!("bytes", "Decimal"),
        r#","parameters":{"scale":"2"}"#
    );
    let items = r#""type":"array","items":{"type":"int32"}"#;
    for (column, schema, payload, expected) in [
        ("boolean", r#""type":"boolean""#, "true", "t"),
        ("smallint", r#""type":"int8""#, "-128", "-128"),
        ("smallint", r#""type":"int16""#, "32767", "32767"),
        ("integer", r#""type":"int32""#, "-2147483648", "-2147483648"),
        (
            "bigint",
            r#""type":"int64""#,
            "9223372036854775807",
            "9223372036854775807",
        ),
        ("bigint", r#""type":"int8""#, "7", "7"),
        (
            "numeric",
            r#""type":"int64""#,
            "-9223372036854775808",
            "-9223372036854775808",
        ),
        ("text", r#""type":"int64""#, "12", "12"),
        ("real", r#""type":"float""#, "1.5", "1.5"),
        ("double precision", r#""type":"double""#, "0.1", "0.1"),
        ("numeric", r#""type":"double""#, "0.1", "0.1"),
        (
            "text",
            r#""type":"string""#,
            r#""a'\"\\ü\u00e9""#,
            "a'\"\\üé",
        ),
        ("varchar(3)", r#""type":"string""#, r#""abc""#, "abc"),
        ("char(5)", r#""type":"string""#, r#""abc""#, "abc  "),
        ("bytea", r#""type":"bytes""#, r#""AP8B""#, "\\x00ff01"),
        ("numeric(10,2)", decimal, r#""AJw=""#, "1.56"),
        ("numeric", decimal, r#""/w==""#, "-0.01"),
        ("numeric", decimal, r#""AA==""#, "0.00"),
        ("double precision", decimal, r#""AJw=""#, "1.56"),
        ("text", decimal, r#""AJw=""#, "1.56"),
        ("date", connect!("int32", "Date"), "0", "1970-01-01"),
        ("date", connect!("int32", "Date"), "-354285", "1000-01-01"),
        (
            "time",
            connect!("int32", "Time"),
            "45296789",
            "12:34:56.789",
        ),
        (
            "timestamptz",
            connect!("int64", "Timestamp"),
            "1690825888386",
            "2023-07-31 17:51:28.386+00",
        ),
        (
            "timestamp",
            connect!("int64", "Timestamp"),
            "-30582511138000",
            "1000-11-17 18:01:02",
        ),
        (
            "timestamp(0)",
            connect!("int64", "Timestamp"),
            "1",
            "1970-01-01 00:00:00",
        ),
        (
            "text",
            connect!("int64", "Timestamp"),
            "0",
            "1970-01-01T00:00:00.000Z",
        ),
        (
            "date",
            debezium!("int32", "time.Date"),
            "19000",
            "2022-01-08",
        ),
        (
            "time",
            debezium!("int64", "time.MicroTime"),
            "1",
            "00:00:00.000001",
        ),
        (
            "timestamp",
            debezium!("int64", "time.MicroTimestamp"),
            "1741149225844195",
            "2025-03-05 04:33:45.844195",
        ),
        (
            "timestamptz",
            debezium!("int64", "time.NanoTimestamp"),
            "1999",
            "1970-01-01 00:00:00.000001+00",
        ),
        (
            "timestamptz",
            debezium!("string", "time.ZonedTimestamp"),
            r#""2025-03-05T04:33:45.844195Z""#,
            "2025-03-05 04:33:45.844195+00",
        ),
        (
            "uuid",
            debezium!("string", "data.Uuid"),
            r#""7e4f2b1c-0000-4000-8000-00000000000a""#,
            "7e4f2b1c-0000-4000-8000-00000000000a",
        ),
        (
            "jsonb",
            debezium!("string", "data.Json"),
            r#""{\"a\": 1}""#,
            r#"{"a": 1}"#,
        ),
        ("jsonb", items, "[1,2]", "[1, 2]"),
        ("integer[]", items, "[1,2]", "{1,2}"),
        (
            "json",
            r#""type":"map","keys":{"type":"string"},"values":{"type":"int32"}"#,
            r#"{"a":1}"#,
            r#"{"a":1}"#,
        ),
        (
            "jsonb",
            r#""type":"struct","fields":[{"field":"x","type":"boolean"}]"#,
            r#"{"x":false}"#,
            r#"{"x": false}"#,
        ),
        ("text", r#""type":"string""#, "null", "NULL"),
        ("integer", r#""type":"int32","default":5"#, "null", "5"),
    ] {
        let found = shown(&database, column, schema, payload).await;
        assert_eq!(found, expected, "{schema} {payload} into {column}");
    }
}

#[tokio::test]
async fn values_without_a_schema_are_read_by_the_columns_types() {
    let database = Database::new("plain").await;
    database
        .run("CREATE TYPE mood AS ENUM ('ok'); CREATE DOMAIN small AS int CHECK (VALUE < 10)")
        .await;
    for (column, payload, expected) in [
        ("integer", "7", "7"),
        ("integer", "7.0", "7"),
        ("integer", r#""7""#, "7"),
        ("numeric(5,1)", "2.25", "2.3"),
        ("real", "0.1", "0.1"),
        ("boolean", r#""yes""#, "t"),
        (
            "timestamptz",
            r#""2025-03-05T04:33:45.844195+01:00""#,
            "2025-03-05 03:33:45.844195+00",
        ),
        ("timestamp", r#""2025-03-05 04:33""#, "2025-03-05 04:33:00"),
        ("date", r#""2025-03-05""#, "2025-03-05"),
        ("time", r#""04:33""#, "04:33:00"),
        ("timetz", r#""04:33+02""#, "04:33:00+02"),
        ("interval", r#""1 day""#, "1 day"),
        (
            "uuid",
            r#""7E4F2B1C00004000800000000000000A""#,
            "7e4f2b1c-0000-4000-8000-00000000000a",
        ),
        ("inet", r#""10.0.0.1/8""#, "10.0.0.1/8"),
        ("mood", r#""ok""#, "ok"),
        ("small", "9", "9"),
        ("bytea", r#""\\xff""#, "\\xff"),
        (
            "text[]",
            r#"["a","b\"\\",null,"NULL"]"#,
            r#"{a,"b\"\\",NULL,"NULL"}"#,
        ),
        ("int[]", "[[1,2],[3,4]]", "{{1,2},{3,4}}"),
        ("jsonb", r#""{""#, r#""{""#),
        ("jsonb", r#"{"a":{"b":[]}}"#, r#"{"a": {"b": []}}"#),
        ("text", r#"{"a":1}"#, r#"{"a":1}"#),
        ("text", "true", "true"),
        ("integer", "null", "NULL"),
        ("inet", "null", "NULL"),
    ] {
        assert_eq!(
            shown(&database, column, "", payload).await,
            expected,
            "{payload} into {column}"
        );
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_by_itself() {
    let database = Database::new("misfits").await;
    database
        .run("CREATE DOMAIN small AS int CHECK (VALUE < 10)")
        .await;
    for (column, payload) in [
        ("smallint", "32768"),
        ("integer", "7.5"),
        ("integer", r#""x""#),
        ("integer", "true"),
        ("real", "1e300"),
        ("text", r#""a\u0000b""#),
        ("varchar(2)", r#""abc""#),
        ("bit(2)", r#""101""#),
        ("small", "10"),
        ("date", "5"),
        ("integer not null", "null"),
        ("boolean", "1"),
        ("uuid", "1"),
        ("numeric(3,2)", "12.5"),
        ("integer generated always as (1) stored", "1"),
    ] {
        let found = match column.contains("generated") {
            // Nothing of the record is left to write, but it isn't an error either.
            true => continue,
            false => shown(&database, column, "", payload).await,
        };
        assert!(
            found.starts_with("refused: "),
            "{payload} into {column}: {found}"
        );
    }
}
