//! Keys of the sink, as users of the JDBC sinks know them.

use std::time::Duration;

use sharegroup_sink::ConnectorConfig;
use sharegroup_sink::config::{ConfigProblem, Importance, KeyDef, ValueKind};

use super::identifier::{TOPIC, TableName};
use super::timeouts::Timeouts;
use super::url::Target;

/// What a task is told.
#[derive(Clone, Debug)]
pub(super) struct PostgresConfig {
    pub(super) target: Target,
    pub(super) table_format: String,
    pub(super) mode: Mode,
    pub(super) key: RowKey,
    pub(super) delete: bool,
    /// `delete.column`.
    pub(super) delete_column: Option<String>,
    pub(super) create: bool,
    pub(super) evolve: bool,
    pub(super) rows_max: usize,
    pub(super) fields: Fields,
    /// `value.column`.
    pub(super) value_column: Option<String>,
    pub(super) guard: Guard,
    pub(super) ignore_nulls: bool,
    pub(super) timeouts: Timeouts,
}

/// `insert.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Insert,
    Upsert,
    Update,
}

/// What tells rows apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowKey {
    /// Nothing.
    None,
    /// Where the record stood in Kafka.
    Place,
    /// These fields of the record's key, or all where none are named.
    OfKey(Vec<String>),
    /// These fields of the record's value, or all where none are named.
    OfValue(Vec<String>),
}

/// Which of two records about a row is the newer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// Whichever comes last.
    Off,
    /// The one with the larger value in this field.
    Field(String),
    /// The one with the larger offset in the same partition, else the later timestamp: in columns beside the row.
    Place,
}

/// Names of the columns that tell where a record stood: its topic's name, partition, offset and the topic's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlaceColumns {
    pub(super) topic: String,
    pub(super) partition: String,
    pub(super) offset: String,
    pub(super) topic_id: String,
}

/// Which fields of the value are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    /// Empty = all.
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Fields {
    /// An entry is a field's name, or `topic:name` for one topic alone.
    pub(super) fn take(&self, topic: &str, field: &str) -> bool {
        let names = |entry: &String| match entry.split_once(':') {
            Some((of, name)) => of == topic && name == field,
            None => entry == field,
        };
        (self.include.is_empty() || self.include.iter().any(names))
            && !self.exclude.iter().any(names)
    }

    /// The fields that are named for a topic.
    pub(super) fn named<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = &'a str> {
        let entries = self.include.iter().map(String::as_str);
        entries.filter_map(move |entry| match entry.split_once(':') {
            Some((of, name)) => (of == topic).then_some(name),
            None => Some(entry),
        })
    }
}

impl PostgresConfig {
    /// The settings of a task; what is wrong with them otherwise.
    pub(super) fn of(config: &ConnectorConfig) -> Result<Self, Vec<ConfigProblem>> {
        let mut reader = Reader {
            config,
            problems: Vec::new(),
        };
        let target = reader.target();
        let key = reader.key();
        let mode = reader.mode(&key);
        let settings = Self {
            guard: reader.guard(mode),
            delete: reader.delete(&key),
            delete_column: reader.delete_column(mode),
            create: config.own_flag(AUTO_CREATE.name) || reader.evolves(),
            evolve: config.own_flag(AUTO_EVOLVE.name) || reader.evolves(),
            table_format: reader.table_format(),
            fields: reader.fields(),
            value_column: reader.text(&VALUE_COLUMN),
            ignore_nulls: config
                .own(NULLS.name)
                .is_some_and(|on| on.eq_ignore_ascii_case("ignore")),
            rows_max: Self::rows_max(config).unwrap_or(3000),
            timeouts: Timeouts {
                connect: reader.millis(&CONNECT_TIMEOUT),
                statement: reader.millis(&STATEMENT_TIMEOUT),
                lock: reader.millis(&LOCK_TIMEOUT),
            },
            mode,
            key,
            target: target.clone().unwrap_or_default(),
        };
        if target.is_some() && reader.problems.iter().all(|problem| !problem.is_error()) {
            return Ok(settings);
        }
        Err(reader.problems)
    }

    /// `batch.size`.
    pub(super) fn rows_max(config: &ConnectorConfig) -> Option<usize> {
        config.own_number(BATCH_SIZE.name)
    }

    /// The names of the columns with a record's place, for `pk.mode=kafka` and for the guard.
    pub(super) fn place_columns(config: &ConnectorConfig) -> PlaceColumns {
        let reader = Reader {
            config,
            problems: Vec::new(),
        };
        let kafka = reader.is_kafka_mode();
        let names = if kafka {
            reader.key_fields()
        } else {
            Vec::new()
        };
        let mut names = names.into_iter();
        let mut name = |default: &str| names.next().unwrap_or_else(|| default.to_owned());
        PlaceColumns {
            topic: name("__connect_topic"),
            partition: name("__connect_partition"),
            offset: name("__connect_offset"),
            topic_id: name("__connect_topic_id"),
        }
    }
}

/// Column of the record's timestamp, for the guard.
pub(super) const TIMESTAMP_COLUMN: &str = "__connect_timestamp";

/// Everything that is wrong or odd about the keys.
pub(super) fn validate(config: &ConnectorConfig) -> Vec<ConfigProblem> {
    let mut problems = PostgresConfig::of(config).err().unwrap_or_default();
    let keys = KEYS.iter().filter(|key| key.group == WITHOUT_EFFECT);
    for key in keys.filter(|key| config.get(key.name).is_some()) {
        let problem = config.problem(key.name, "has no effect here");
        let why = key.doc.trim_start_matches("no effect: ");
        problems.push(problem.advice(why).warning());
    }
    if let Some(Ok(target)) = config.get(URL.name).map(Target::parse) {
        for parameter in &target.unknown {
            let message = format!("has the parameter {parameter}, which has no effect here");
            problems.push(config.problem(URL.name, message).without_value().warning());
        }
    }
    problems
}

struct Reader<'a> {
    config: &'a ConnectorConfig,
    problems: Vec<ConfigProblem>,
}

impl Reader<'_> {
    fn problem(&mut self, key: &str, message: impl Into<String>, advice: &str) {
        let problem = self.config.problem(key, message);
        self.problems.push(problem.advice(advice));
    }

    fn text(&self, key: &KeyDef) -> Option<String> {
        let text = self.config.own(key.name)?.trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    }

    /// The value of a key that has two names.
    fn either(&self, key: &KeyDef, other: &KeyDef) -> Option<String> {
        let set = |key: &KeyDef| self.config.get(key.name).map(str::to_owned);
        set(key)
            .or_else(|| set(other))
            .or_else(|| self.text(key))
            .filter(|text| !text.is_empty())
    }

    fn millis(&self, key: &KeyDef) -> Duration {
        Duration::from_millis(self.config.own_number(key.name).unwrap_or(0))
    }

    fn target(&mut self) -> Option<Target> {
        let url = self.config.get(URL.name)?;
        let mut target = match Target::parse(url) {
            Ok(target) => target,
            Err(reason) => {
                let advice =
                    "write jdbc:postgresql://host:5432/database or postgresql://host/database";
                let problem = self.config.problem(URL.name, reason).without_value();
                self.problems.push(problem.advice(advice));
                return None;
            }
        };
        if let Some(user) = self.either(&USER, &USERNAME) {
            target.user = Some(user);
        }
        if let Some(password) = self.text(&PASSWORD) {
            target.password = Some(password);
        }
        #[cfg(not(feature = "tls"))]
        if target.tls != super::url::Tls::Off {
            self.problem(
                URL.name,
                "asks for TLS",
                "this build has none: use one with the feature tls",
            );
        }
        Some(target)
    }

    fn is_kafka_mode(&self) -> bool {
        self.either(&PK_MODE, &PRIMARY_KEY_MODE)
            .is_some_and(|mode| mode.eq_ignore_ascii_case("kafka"))
    }

    fn key_fields(&self) -> Vec<String> {
        list(
            &self
                .either(&PK_FIELDS, &PRIMARY_KEY_FIELDS)
                .unwrap_or_default(),
        )
    }

    fn key(&mut self) -> RowKey {
        let fields = self.key_fields();
        let mode = self.either(&PK_MODE, &PRIMARY_KEY_MODE).unwrap_or_default();
        for (one, other) in [
            (&PK_MODE, &PRIMARY_KEY_MODE),
            (&PK_FIELDS, &PRIMARY_KEY_FIELDS),
        ] {
            let (first, second) = (self.config.get(one.name), self.config.get(other.name));
            if first.is_some() && second.is_some() && first != second {
                let message = format!("says something else than {}", other.name);
                self.problem(one.name, message, "they mean the same: keep one");
            }
        }
        match mode.to_ascii_lowercase().as_str() {
            "none" => RowKey::None,
            "record_key" => RowKey::OfKey(fields),
            "record_value" => RowKey::OfValue(fields),
            _ => {
                if !matches!(fields.len(), 0 | 3 | 4) {
                    let advice = "with pk.mode=kafka it names the columns of topic, partition, offset and, if you like, topic id";
                    self.problem(PK_FIELDS.name, "must have three or four names", advice);
                }
                RowKey::Place
            }
        }
    }

    fn mode(&mut self, key: &RowKey) -> Mode {
        let mode = self.text(&INSERT_MODE).unwrap_or_default();
        let mode = match mode.to_ascii_lowercase().as_str() {
            "upsert" => Mode::Upsert,
            "update" => Mode::Update,
            _ => return Mode::Insert,
        };
        if matches!(key, RowKey::None | RowKey::Place) {
            let advice = "set pk.mode to record_key or record_value: a record's place in Kafka is never written twice";
            self.problem(INSERT_MODE.name, "needs a key of the rows", advice);
        }
        mode
    }

    fn guard(&mut self, mode: Mode) -> Guard {
        let field = self.text(&VERSION_FIELD);
        let is_on = self.config.own_flag(VERSION_GUARD.name);
        if field.is_some() && self.config.get(VERSION_GUARD.name).is_some() && !is_on {
            let advice = "remove one of the two";
            self.problem(
                VERSION_FIELD.name,
                "has no effect with version.guard=false",
                advice,
            );
        }
        match (mode, field) {
            (Mode::Insert, _) => Guard::Off,
            (_, Some(field)) => Guard::Field(field),
            _ if is_on => Guard::Place,
            _ => Guard::Off,
        }
    }

    fn delete(&mut self, key: &RowKey) -> bool {
        let delete = self.config.own_flag(DELETE.name);
        if delete && !matches!(key, RowKey::OfKey(_)) {
            let advice = "only pk.mode=record_key tells which row a null value deletes";
            self.problem(DELETE.name, "doesn't go with this pk.mode", advice);
        }
        delete
    }

    fn delete_column(&mut self, mode: Mode) -> Option<String> {
        let column = self.text(&DELETE_COLUMN)?;
        if !self.config.own_flag(DELETE.name) || mode == Mode::Insert {
            let advice = "set delete.enabled=true and insert.mode=upsert";
            self.problem(DELETE_COLUMN.name, "marks nothing", advice);
        }
        if self.text(&VERSION_FIELD).is_some() {
            let advice = "a null value has no such field: leave it to version.guard";
            self.problem(DELETE_COLUMN.name, "doesn't go with version.field", advice);
        }
        Some(column)
    }

    fn evolves(&self) -> bool {
        let evolution = self.text(&SCHEMA_EVOLUTION).unwrap_or_default();
        evolution.eq_ignore_ascii_case("basic")
    }

    fn table_format(&mut self) -> String {
        let format = self
            .either(&TABLE_FORMAT, &COLLECTION_FORMAT)
            .unwrap_or_else(|| TOPIC.to_owned());
        if let Err(reason) = TableName::of(&format, "topic") {
            self.problem(
                TABLE_FORMAT.name,
                reason,
                "write table, schema.table or schema.${topic}",
            );
        }
        format
    }

    fn fields(&self) -> Fields {
        let all = |keys: &[&KeyDef]| {
            let texts = keys.iter().filter_map(|key| self.text(key));
            texts.flat_map(|text| list(&text)).collect()
        };
        Fields {
            include: all(&[&INCLUDE, &FIELD_INCLUDE, &WHITELIST]),
            exclude: all(&[&EXCLUDE, &FIELD_EXCLUDE]),
        }
    }
}

fn list(text: &str) -> Vec<String> {
    let names = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

const URL: KeyDef = KeyDef::required(
    "connection.url",
    // It may hold a password.
    ValueKind::Password,
    "the database: jdbc:postgresql://host:port/database?sslmode=verify-full, or the same as postgresql://",
);
const USER: KeyDef = KeyDef::unset(
    "connection.user",
    ValueKind::Text,
    "who connects; wins over the URL's",
);
const USERNAME: KeyDef = KeyDef::unset(
    "connection.username",
    ValueKind::Text,
    "the same as connection.user",
)
.alias_of("connection.user");
const PASSWORD: KeyDef = KeyDef::unset(
    "connection.password",
    ValueKind::Password,
    "the password; wins over the URL's",
);
const INSERT_MODE: KeyDef = KeyDef::optional(
    "insert.mode",
    ValueKind::OneOf(&["insert", "upsert", "update"]),
    "insert",
    "insert adds rows, upsert adds or replaces them, update changes those that are there and leaves out others",
);
const PK_MODE: KeyDef = KeyDef::optional(
    "pk.mode",
    ValueKind::OneOf(&["none", "kafka", "record_key", "record_value"]),
    "kafka",
    "what tells rows apart: the record's place in Kafka (kafka: what is delivered twice is one row), fields of its key or value, or nothing (none: what is delivered twice is two rows)",
);
const PRIMARY_KEY_MODE: KeyDef = KeyDef::unset(
    "primary.key.mode",
    ValueKind::OneOf(&["none", "kafka", "record_key", "record_value"]),
    "the same as pk.mode",
)
.alias_of("pk.mode");
const PK_FIELDS: KeyDef = KeyDef::unset(
    "pk.fields",
    ValueKind::List,
    "the fields of the key, all where it is empty; one name for a key that isn't a struct; with pk.mode=kafka the columns of topic, partition, offset and topic id",
);
const PRIMARY_KEY_FIELDS: KeyDef = KeyDef::unset(
    "primary.key.fields",
    ValueKind::List,
    "the same as pk.fields",
)
.alias_of("pk.fields");
const DELETE: KeyDef = KeyDef::optional(
    "delete.enabled",
    ValueKind::Bool,
    "false",
    "a null value deletes the row of its key; with pk.mode=record_key",
);
const DELETE_COLUMN: KeyDef = KeyDef::unset(
    "delete.column",
    ValueKind::Text,
    "a null value doesn't remove its row but sets this column to true, so that a late older record can't bring the row back; the other columns must take null",
);
const AUTO_CREATE: KeyDef = KeyDef::optional(
    "auto.create",
    ValueKind::Bool,
    "false",
    "makes a table that is missing, by the first record's schema",
);
const AUTO_EVOLVE: KeyDef = KeyDef::optional(
    "auto.evolve",
    ValueKind::Bool,
    "false",
    "adds columns that are missing, without NOT NULL",
);
const SCHEMA_EVOLUTION: KeyDef = KeyDef::unset(
    "schema.evolution",
    ValueKind::OneOf(&["none", "basic"]),
    "basic is auto.create and auto.evolve",
);
const TABLE_FORMAT: KeyDef = KeyDef::optional(
    "table.name.format",
    ValueKind::NonBlank,
    TOPIC,
    "the table, with or without its schema; ${topic} is the topic's name with _ for each dot",
);
const COLLECTION_FORMAT: KeyDef = KeyDef::unset(
    "collection.name.format",
    ValueKind::NonBlank,
    "the same as table.name.format",
)
.alias_of("table.name.format");
const BATCH_SIZE: KeyDef = KeyDef::optional(
    "batch.size",
    ValueKind::Int {
        min: 1,
        max: 100_000,
    },
    "3000",
    "most rows of one statement, and of one put unless max.poll.records is set",
);
const INCLUDE: KeyDef = KeyDef::unset(
    "fields.include.list",
    ValueKind::List,
    "the value's fields that are written, as name or topic:name; all where it is empty; key fields are written always",
);
const FIELD_INCLUDE: KeyDef = KeyDef::unset(
    "field.include.list",
    ValueKind::List,
    "the same as fields.include.list",
)
.alias_of("fields.include.list");
const WHITELIST: KeyDef = KeyDef::unset(
    "fields.whitelist",
    ValueKind::List,
    "the same as fields.include.list",
)
.alias_of("fields.include.list");
const EXCLUDE: KeyDef = KeyDef::unset(
    "fields.exclude.list",
    ValueKind::List,
    "the value's fields that are left out, as name or topic:name",
);
const FIELD_EXCLUDE: KeyDef = KeyDef::unset(
    "field.exclude.list",
    ValueKind::List,
    "the same as fields.exclude.list",
)
.alias_of("fields.exclude.list");
const VALUE_COLUMN: KeyDef = KeyDef::unset(
    "value.column",
    ValueKind::Text,
    "writes the whole value into this column, best of type jsonb, and not field by field",
);
const VERSION_FIELD: KeyDef = KeyDef::unset(
    "version.field",
    ValueKind::Text,
    "with upsert and update: a row is replaced only by a record whose value of this field isn't smaller",
);
const VERSION_GUARD: KeyDef = KeyDef::optional(
    "version.guard",
    ValueKind::Bool,
    "true",
    "with upsert and update, without version.field: a row is replaced only by a record with a larger offset of the same partition, else a later timestamp; in columns beside the row",
);
const NULLS: KeyDef = KeyDef::optional(
    "behavior.on.null.values",
    ValueKind::OneOf(&["fail", "ignore"]),
    "fail",
    "a null value without delete.enabled and value.column is refused, or left out",
);
const CONNECT_TIMEOUT: KeyDef = KeyDef::optional(
    "connect.timeout.ms",
    ValueKind::Int {
        min: 1,
        max: 600_000,
    },
    "10000",
    "longest time to connect to one host",
);
const STATEMENT_TIMEOUT: KeyDef = KeyDef::optional(
    "statement.timeout.ms",
    ValueKind::Int {
        min: 1,
        max: 3_600_000,
    },
    "20000",
    "longest time of one statement; never more than two thirds of the group's share.record.lock.duration.ms",
);
const LOCK_TIMEOUT: KeyDef = KeyDef::optional(
    "lock.timeout.ms",
    ValueKind::Int {
        min: 1,
        max: 3_600_000,
    },
    "10000",
    "longest wait of a statement for a lock of the database; never more than half of a statement's longest time",
);

const TUNED: &str =
    "no effect: one connection for each task, or for each of share.concurrency, is kept open";
const RETRIED: &str =
    "no effect: share.hold.max.ms and share.breaker.* say how long a put is tried again";

/// A key of the JDBC sinks that means nothing here, and why.
const fn without_effect(name: &'static str, why: &'static str) -> KeyDef {
    KeyDef::unset(name, ValueKind::Text, why)
        .importance(Importance::Low)
        .group(WITHOUT_EFFECT)
}

const WITHOUT_EFFECT: &str = "Without effect";

pub(super) const KEYS: &[KeyDef] = &[
    URL,
    USER,
    USERNAME,
    PASSWORD,
    INSERT_MODE,
    PK_MODE,
    PRIMARY_KEY_MODE,
    PK_FIELDS,
    PRIMARY_KEY_FIELDS,
    DELETE,
    DELETE_COLUMN,
    AUTO_CREATE,
    AUTO_EVOLVE,
    SCHEMA_EVOLUTION,
    TABLE_FORMAT,
    COLLECTION_FORMAT,
    BATCH_SIZE,
    INCLUDE,
    FIELD_INCLUDE,
    WHITELIST,
    EXCLUDE,
    FIELD_EXCLUDE,
    VALUE_COLUMN,
    VERSION_FIELD,
    VERSION_GUARD,
    NULLS,
    CONNECT_TIMEOUT,
    STATEMENT_TIMEOUT,
    LOCK_TIMEOUT,
    without_effect("max.retries", RETRIED),
    without_effect("retry.backoff.ms", RETRIED),
    without_effect("connection.attempts", RETRIED),
    without_effect("connection.backoff.ms", RETRIED),
    without_effect("dialect.name", "no effect: it is always PostgreSQL"),
    without_effect(
        "table.types",
        "no effect: tables and views are written to alike",
    ),
    without_effect(
        "quote.sql.identifiers",
        "no effect: names are always quoted",
    ),
    without_effect(
        "quote.identifiers",
        "no effect: names are always quoted; one that isn't there is looked for in lower case",
    ),
    without_effect("db.timezone", "no effect: moments are written in UTC"),
    without_effect("use.time.zone", "no effect: moments are written in UTC"),
    without_effect(
        "database.time_zone",
        "no effect: moments are written in UTC",
    ),
    without_effect(
        "use.reduction.buffer",
        "no effect: of several records with one key in a statement the newest is written",
    ),
    without_effect("flush.max.retries", RETRIED),
    without_effect("flush.retry.delay.ms", RETRIED),
    without_effect("connection.provider", TUNED),
    without_effect("connection.pool.min_size", TUNED),
    without_effect("connection.pool.max_size", TUNED),
    without_effect("connection.pool.acquire_increment", TUNED),
    without_effect("connection.pool.timeout", TUNED),
    without_effect(
        "connection.restart.on.errors",
        "no effect: a connection that is lost is always made anew",
    ),
    without_effect("truncate.enabled", "no effect: no record empties a table"),
    without_effect(
        "column.naming.strategy",
        "no effect: columns have the names of their fields",
    ),
    without_effect(
        "collection.naming.strategy",
        "no effect: table.name.format names the table",
    ),
];
