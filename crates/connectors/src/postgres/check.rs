//! Whether the database would take rows: asks its catalog, and changes nothing.

use sharegroup_sink::config::ConfigProblem;
use sharegroup_sink::{Checked, ConnectorConfig};
use tokio_postgres::Error;

use super::config::{Guard, Mode, PlaceColumns, PostgresConfig, RowKey, TIMESTAMP_COLUMN};
use super::connect::Session;
use super::encode::{Class, form};
use super::identifier::{TableName, quoted};
use super::outcome::{Trouble, TroubleKind};
use super::plan::Plan;
use super::table::{Kind, Table};
use super::timeouts::Held;

/// Looks at the database and the tables of these topics.
pub(super) async fn check(config: &ConnectorConfig, topics: &[String]) -> Checked {
    let mut checked = Checked::default();
    let settings = match PostgresConfig::of(config) {
        Ok(settings) => settings,
        Err(problems) => {
            checked.problems = problems;
            return checked;
        }
    };
    let session = match Session::open(&settings, Held::default()).await {
        Ok(session) => session,
        Err(trouble) => return Checked::failed(no_connection(config, &trouble)),
    };
    let look = Look {
        place: PostgresConfig::place_columns(config),
        config,
        settings: &settings,
        session: &session,
    };
    if let Err(error) = look.all(topics, &mut checked).await {
        let reason = Trouble::of(&error);
        let message = format!("PostgreSQL can't be looked at: {reason}");
        checked.problem(config.problem(URL, message));
    }
    checked
}

fn no_connection(config: &ConnectorConfig, trouble: &Trouble) -> ConfigProblem {
    let advice = match trouble.kind {
        TroubleKind::Broken => {
            "look at connection.user, connection.password and the database's name in connection.url"
        }
        _ => "is the server up at that host and port, and does it take connections from here?",
    };
    config.problem(URL, trouble.to_string()).advice(advice)
}

struct Look<'a> {
    config: &'a ConnectorConfig,
    settings: &'a PostgresConfig,
    place: PlaceColumns,
    session: &'a Session,
}

impl Look<'_> {
    async fn all(&self, topics: &[String], checked: &mut Checked) -> Result<(), Error> {
        let client = &self.session.client;
        // What is called here may be a function of anybody's.
        client
            .batch_execute("SET default_transaction_read_only = on")
            .await?;
        let row = client.query_one(SERVER, &[]).await?;
        let (version, database, user): (String, String, String) =
            (row.get(0), row.get(1), row.get(2));
        if row.get(3) {
            let problem = self.problem(URL, "the server is a standby and takes no rows".to_owned());
            let advice = "name the primary, or several hosts with targetServerType=primary";
            checked.problem(problem.advice(advice));
            return Ok(());
        }
        let place = self.settings.target.place();
        checked.note(format!(
            "PostgreSQL {version} at {place} lets the user {user} into the database {database}"
        ));
        for topic in topics {
            self.table(topic, checked).await?;
        }
        Ok(())
    }

    async fn table(&self, topic: &str, checked: &mut Checked) -> Result<(), Error> {
        let name = match TableName::of(&self.settings.table_format, topic) {
            Ok(name) => name,
            Err(reason) => {
                let message = format!("for the topic {topic}, {reason}");
                checked.problem(self.problem(FORMAT, message));
                return Ok(());
            }
        };
        let Some(table) = Table::describe(&self.session.client, &name).await? else {
            return self.no_table(topic, &name, checked).await;
        };
        let before = checked.problems.len();
        let columns = table.columns.len();
        self.columns(topic, &table, checked);
        self.rights(&name, checked).await?;
        let plan = Plan::new(table);
        if let Err(reason) = plan.check(self.settings, &self.place) {
            checked.problem(self.problem(KEY_MODE, reason));
        }
        if checked.problems.len() == before {
            checked.note(format!(
                "table {name} has {columns} columns and may be written"
            ));
        }
        Ok(())
    }

    /// Whether the table may be made where it is missing.
    async fn no_table(
        &self,
        topic: &str,
        name: &TableName,
        checked: &mut Checked,
    ) -> Result<(), Error> {
        if !self.settings.create {
            let message = format!("there is no table {name} for the topic {topic}");
            let advice = "make it, set auto.create=true, or name another with table.name.format";
            checked.problem(self.problem(FORMAT, message).advice(advice));
            return Ok(());
        }
        let schema = name.schema.as_deref().map(quoted);
        let row = self.session.client.query_one(SCHEMA, &[&schema]).await?;
        let (schema, may_create): (Option<String>, Option<bool>) = (row.get(0), row.get(1));
        match (schema, may_create) {
            (Some(schema), Some(false)) => {
                let message = format!(
                    "the table {name} can't be made: no right to create in the schema {schema}"
                );
                let user = "grant it: GRANT USAGE, CREATE ON SCHEMA, or make the table yourself";
                checked.problem(self.problem(CREATE, message).advice(user));
            }
            (Some(_), _) => checked.note(format!(
                "table {name} isn't there yet; it is made for the first record (auto.create)"
            )),
            (None, _) => {
                let message = match &name.schema {
                    Some(schema) => format!("there is no schema {}", quoted(schema)),
                    None => "the search path names no schema that is there".to_owned(),
                };
                let advice = "create the schema; auto.create makes tables only";
                checked.problem(self.problem(FORMAT, message).advice(advice));
            }
        }
        Ok(())
    }

    /// Columns that are known before the first record comes.
    fn columns(&self, topic: &str, table: &Table, checked: &mut Checked) {
        for (key, column, class) in self.expected(topic) {
            let found = table.column(&column).and_then(|at| table.columns.get(at));
            let Some(found) = found else {
                // Those of a record's place are told of together, with the statement that adds them.
                if key != KEY_MODE && !self.settings.evolve {
                    let message =
                        format!("the table {} has no column {}", table.name, quoted(&column));
                    let advice = "add it, set auto.evolve=true, or take it out";
                    checked.problem(self.problem(key, message).advice(advice));
                }
                continue;
            };
            let is_text = matches!(
                found.kind,
                Kind::Text | Kind::Json | Kind::Jsonb | Kind::Other
            );
            let fits = class.is_none_or(|class| {
                form(class, found.kind).is_some() && (class != Class::Text || is_text)
            });
            if !fits && !found.is_generated {
                let message = format!(
                    "the column {} of {} has the type {}, which doesn't take this",
                    quoted(&found.name),
                    table.name,
                    found.stored_as
                );
                let advice = "change its type, or name another column";
                checked.problem(self.problem(key, message).advice(advice));
            }
        }
    }

    /// The key that asks for a column, the column, and what is written to it where that is known.
    fn expected(&self, topic: &str) -> Vec<(&'static str, String, Option<Class>)> {
        let settings = self.settings;
        let mut expected = Vec::new();
        let mut expect = |key, name: &str, class| expected.push((key, name.to_owned(), class));
        match &settings.key {
            RowKey::None => {}
            RowKey::Place => expect(KEY_MODE, &self.place.topic, Some(Class::Text)),
            RowKey::OfKey(names) | RowKey::OfValue(names) => {
                names.iter().for_each(|name| expect(KEY_FIELDS, name, None));
            }
        }
        let is_guarded = settings.mode != Mode::Insert && settings.guard == Guard::Place;
        if settings.key == RowKey::Place || is_guarded {
            expect(KEY_MODE, &self.place.topic_id, Some(Class::Bytes));
            expect(KEY_MODE, &self.place.partition, Some(Class::Integer));
            expect(KEY_MODE, &self.place.offset, Some(Class::Integer));
        }
        if is_guarded {
            expect(KEY_MODE, TIMESTAMP_COLUMN, Some(Class::Timestamp));
        }
        match &settings.value_column {
            Some(column) => expect("value.column", column, None),
            None => {
                for field in settings.fields.named(topic) {
                    expect("fields.include.list", field, None);
                }
            }
        }
        if let Some(column) = &settings.delete_column {
            expect("delete.column", column, Some(Class::Boolean));
        }
        if let Guard::Field(field) = &settings.guard {
            expect("version.field", field, None);
        }
        expected
    }

    async fn rights(&self, name: &TableName, checked: &mut Checked) -> Result<(), Error> {
        let name = name.to_string();
        let row = self.session.client.query_one(RIGHTS, &[&name]).await?;
        let settings = self.settings;
        let updates = settings.mode != Mode::Insert || settings.delete_column.is_some();
        let needed = [
            ("INSERT", settings.mode != Mode::Update),
            ("UPDATE", updates),
            (
                "DELETE",
                settings.delete && settings.delete_column.is_none(),
            ),
            // To tell rows that are there from others.
            ("SELECT", settings.key != RowKey::None),
        ];
        let granted = |index| row.get::<_, Option<bool>>(index) == Some(true);
        let lacking: Vec<_> = needed
            .iter()
            .enumerate()
            .filter(|(index, (_, is_needed))| *is_needed && !granted(*index))
            .map(|(_, (right, _))| *right)
            .collect();
        if !lacking.is_empty() {
            let rights = lacking.join(", ");
            let message = format!("the user lacks {rights} on the table {name}");
            let advice = format!("GRANT {rights} ON {name} TO the user of the connection");
            checked.problem(self.problem(FORMAT, message).advice(advice));
        }
        if settings.evolve && !granted(needed.len()) {
            let message = format!("only its owner can add columns to the table {name}");
            let advice = "make the user its owner, or add the columns yourself";
            let problem = self.problem("auto.evolve", message).advice(advice);
            checked.problem(problem.warning());
        }
        Ok(())
    }

    fn problem(&self, key: &str, message: String) -> ConfigProblem {
        self.config.problem(key, message)
    }
}

const URL: &str = "connection.url";
const FORMAT: &str = "table.name.format";
const CREATE: &str = "auto.create";
const KEY_MODE: &str = "pk.mode";
const KEY_FIELDS: &str = "pk.fields";

const SERVER: &str = "SELECT pg_catalog.split_part(pg_catalog.current_setting('server_version'), ' ', 1), pg_catalog.current_database()::text, \
    current_user::text, pg_catalog.pg_is_in_recovery()";

/// The schema of that name, or that where tables are made, and whether this user may.
const SCHEMA: &str = "SELECT n.nspname::text, pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
    AND pg_catalog.has_schema_privilege(n.oid, 'CREATE') \
    FROM (SELECT CASE WHEN $1::text IS NULL THEN (SELECT oid FROM pg_catalog.pg_namespace \
    WHERE nspname = pg_catalog.current_schema()) ELSE pg_catalog.to_regnamespace($1)::oid END AS oid) AS s \
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = s.oid";

/// A right on some columns may be enough.
const RIGHTS: &str = "SELECT pg_catalog.has_any_column_privilege(c.oid, 'INSERT'), \
    pg_catalog.has_any_column_privilege(c.oid, 'UPDATE'), pg_catalog.has_table_privilege(c.oid, 'DELETE'), \
    pg_catalog.has_any_column_privilege(c.oid, 'SELECT'), pg_catalog.pg_has_role(c.relowner, 'USAGE') \
    FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1::text)::oid";
