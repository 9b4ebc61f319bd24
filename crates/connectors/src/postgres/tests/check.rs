//! What `validate --connect` says of a database.

use sharegroup_sink::{Checked, Connector};

use super::*;

async fn check(extra: &[(&str, &str)]) -> Checked {
    let config = configure(extra).unwrap();
    let topics = ["orders".to_owned()];
    PostgresConnector.check(&config, &topics).await
}

/// The only problem, as it is printed.
async fn problem(extra: &[(&str, &str)]) -> String {
    let checked = check(extra).await;
    assert_eq!(checked.problems.len(), 1, "{checked:?}");
    checked.problems[0].to_string()
}

#[tokio::test]
async fn a_table_that_is_as_it_should_be_has_no_problem() {
    let database = Database::new("check_fine").await;
    let url = database.url();
    let made = check(&[("connection.url", &url), ("auto.create", "true")]).await;
    assert_eq!(made.problems, []);
    assert!(made.notes[0].contains("lets the user sharegroup into the database check_fine"));
    assert!(made.notes[1].starts_with("table \"orders\" isn't there yet; it is made"));
    // Only looked at.
    let tables = "SELECT count(*) FROM pg_class WHERE relname = 'orders'";
    assert_eq!(database.rows(tables).await, ["0"]);
    database
        .run("CREATE TABLE orders (id int PRIMARY KEY, name text)")
        .await;
    let keys = [
        ("connection.url", url.as_str()),
        ("pk.mode", "record_value"),
        ("pk.fields", "id"),
        ("fields.include.list", "id,name"),
    ];
    let found = check(&keys).await;
    assert_eq!(found.problems, []);
    assert_eq!(
        found.notes[1],
        "table \"orders\" has 2 columns and may be written"
    );
}

#[tokio::test]
async fn what_the_table_lacks_is_named_with_the_key_and_what_to_do() {
    let database = Database::new("check_table").await;
    let url = database.url();
    let with = async |extra: &[(&str, &str)]| {
        problem(&[&[("connection.url", url.as_str())], extra].concat()).await
    };
    assert_eq!(
        with(&[]).await,
        "out.properties: table.name.format: there is no table \"orders\" for the topic orders; make it, set \
         auto.create=true, or name another with table.name.format"
    );
    let no_schema = with(&[
        ("table.name.format", "shop.${topic}"),
        ("auto.create", "true"),
    ])
    .await;
    assert!(
        no_schema.contains("there is no schema \"shop\""),
        "{no_schema}"
    );
    database.run("CREATE TABLE orders (id int, flag int)").await;
    let by_id = [("pk.mode", "record_value"), ("pk.fields", "id")];
    let place = with(&[]).await;
    assert!(
        place.starts_with(
            "out.properties: pk.mode: the table \"orders\" lacks columns (ALTER TABLE"
        ),
        "{place}"
    );
    let index = with(&by_id).await;
    assert!(
        index.contains("CREATE UNIQUE INDEX ON \"orders\" (\"id\")"),
        "{index}"
    );
    database.run("CREATE UNIQUE INDEX ON orders (id)").await;
    let field = with(&[&by_id[..], &[("fields.include.list", "nmae")]].concat()).await;
    assert!(
        field.contains("fields.include.list=nmae: the table \"orders\" has no column \"nmae\""),
        "{field}"
    );
    let deletes = [
        ("pk.mode", "record_key"),
        ("pk.fields", "id"),
        ("insert.mode", "upsert"),
        ("version.guard", "false"),
        ("delete.enabled", "true"),
        ("delete.column", "flag"),
    ];
    let kind = with(&deletes).await;
    assert!(
        kind.contains("delete.column=flag: the column \"flag\" of \"orders\" has the type integer"),
        "{kind}"
    );
}

#[tokio::test]
async fn rights_that_are_missing_are_named_together() {
    let database = Database::new("check_rights").await;
    database
        .run(
            "CREATE TABLE orders (id int PRIMARY KEY); CREATE ROLE check_rights LOGIN; \
             GRANT INSERT ON orders TO check_rights; REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        )
        .await;
    let url = database.url();
    let keys = [
        ("connection.url", url.as_str()),
        ("connection.user", "check_rights"),
        ("pk.mode", "record_key"),
        ("pk.fields", "id"),
        ("insert.mode", "upsert"),
        ("version.guard", "false"),
        ("delete.enabled", "true"),
    ];
    let lacking = problem(&keys).await;
    assert!(
        lacking.contains("the user lacks UPDATE, DELETE, SELECT on the table \"orders\""),
        "{lacking}"
    );
    let insert_only = [keys[0], keys[1], ("pk.mode", "none")];
    assert_eq!(check(&insert_only).await.problems, []);
    let make = [
        &insert_only[..],
        &[("table.name.format", "other"), ("auto.create", "true")],
    ];
    let make = problem(&make.concat()).await;
    assert!(
        make.contains("no right to create in the schema public"),
        "{make}"
    );
}

#[tokio::test]
async fn who_is_not_let_in_is_told_why_and_no_password_is_shown() {
    let database = Database::new("check_access").await;
    drop(database);
    let port = server().port();
    let url = |database: &str, user: &str| {
        format!("postgresql://{user}:hush@127.0.0.1:{port}/{database}")
    };
    let unknown = problem(&[("connection.url", &url("nowhere", "sharegroup"))]).await;
    assert!(
        unknown.contains("nowhere")
            && unknown.contains("connection.url")
            && !unknown.contains("hush"),
        "{unknown}"
    );
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = closed.local_addr().unwrap().port();
    drop(closed);
    let nobody = format!("postgresql://me:hush@127.0.0.1:{free}/x");
    let nobody = problem(&[("connection.url", &nobody)]).await;
    assert!(
        nobody.contains("is the server up") && !nobody.contains("hush"),
        "{nobody}"
    );
}
