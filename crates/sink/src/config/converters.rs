//! How keys, values and header values are read: `key.converter`, `value.converter`,
//! `header.converter` and the settings under their names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::keys::{CONNECTOR, KeyDef, ValueKind, nearest};
use super::problem::ConfigProblem;
use super::properties::Properties;
use super::read::Reader;
use crate::convert::{self, ConverterConfigError, ConverterSettings, Converters};

/// The converters of a connector.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConvertersConfig {
    /// `key.converter`. Default `ByteArrayConverter`.
    pub key: ConverterConfig,
    /// `value.converter`. Default `ByteArrayConverter`.
    pub value: ConverterConfig,
    /// `header.converter`. Default `SimpleHeaderConverter`.
    pub header: ConverterConfig,
}

/// A converter: its class and its settings.
#[derive(Clone)]
#[non_exhaustive]
pub struct ConverterConfig {
    /// The class, as written.
    pub class: String,
    /// Its settings: `key.converter.schemas.enable` is `schemas.enable` here.
    pub settings: BTreeMap<String, String>,
    key: &'static str,
    file: Arc<Properties>,
}

/// Without values: some are secrets.
impl fmt::Debug for ConverterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConverterConfig")
            .field("class", &self.file.shown(self.key).unwrap_or(&self.class))
            .field("settings", &self.settings.keys())
            .finish_non_exhaustive()
    }
}

impl ConverterConfig {
    /// An error about the class, with its place filled in: the worker's file where the connector's
    /// doesn't name one.
    pub fn problem(&self, message: impl Into<String>) -> ConfigProblem {
        self.file.problem(self.key, message)
    }

    /// An error about one of the settings, as [`ConverterConfig::problem`].
    pub fn setting_problem(&self, name: &str, message: impl Into<String>) -> ConfigProblem {
        self.file.problem(&format!("{}.{name}", self.key), message)
    }

    /// What keeps the converter from being made, if anything does.
    fn wrong<C>(
        &self,
        find: fn(&str, &ConverterSettings) -> Result<C, ConverterConfigError>,
    ) -> Option<ConfigProblem> {
        let Err(error) = find(&self.class, &self.settings) else {
            return self.unknown_setting();
        };
        Some(match error {
            ConverterConfigError::InvalidValue { key, expected } => {
                self.setting_problem(key, format!("must be {expected}"))
            }
            ConverterConfigError::UnknownClass { known, .. } => {
                let problem = self.problem("is not a known converter");
                problem.advice(format!("there are {known}"))
            }
            ConverterConfigError::NotHereYet { known, .. } => {
                let problem = self.problem("is not supported yet");
                problem.advice(format!("there are {known}"))
            }
        })
    }

    /// A setting that no converter here has; nearly one of them is an error.
    fn unknown_setting(&self) -> Option<ConfigProblem> {
        let mut names = self.settings.keys().map(String::as_str);
        let known = SETTINGS.map(|setting| setting.name);
        let name = names.find(|name| !known.contains(name))?;
        let meant = nearest(name, known.into_iter().map(Cow::Borrowed));
        let unknown = self
            .setting_problem(name, "is not a setting of any converter here")
            .without_value();
        Some(match meant {
            Some(meant) => unknown.advice(format!("did you mean {}.{meant}?", self.key)),
            None => unknown.warning(),
        })
    }

    /// That of the connector; where it names none, the worker's with the worker's settings.
    fn resolve(
        key: &'static str,
        connector: &Properties,
        worker: &Properties,
        problems: &mut Vec<ConfigProblem>,
    ) -> Self {
        let prefix = format!("{key}.");
        let names_class =
            |file: &Properties| file.get(key).is_some_and(|class| !class.trim().is_empty());
        let file = if names_class(connector) {
            connector
        } else {
            let mut ignored = settings(connector, &prefix);
            if let Some((name, _)) = ignored.next() {
                let message = format!(
                    "is ignored: without {key} in this file the worker's converter works, with the worker's settings"
                );
                let problem = connector.problem(&format!("{prefix}{name}"), message);
                problems.push(problem.advice(format!("set {key} here, too")).warning());
            }
            worker
        };
        let values = Reader::new(&[CONNECTOR], |key: &str| file.get(key));
        let settings = settings(file, &prefix).filter(|_| names_class(file));
        Self {
            class: values.owned(key).unwrap_or_default(),
            settings: settings
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            key,
            file: Arc::new(file.clone()),
        }
    }
}

/// Settings of Kafka Connect's own converters, and ours; some have no effect on some.
pub(super) const SETTINGS: [KeyDef; 8] = [
    KeyDef::optional(
        "schemas.enable",
        ValueKind::Bool,
        "true",
        "JsonConverter: whether JSON is an object of exactly schema and payload; false for plain JSON",
    ),
    KeyDef::optional(
        "json.lenient",
        ValueKind::Bool,
        "false",
        "JsonConverter, ours: whether a value that doesn't fit its schema becomes what Java's converter makes of it (300 as int8 is 44, a text as int64 is 0); false makes it an error",
    ),
    KeyDef::optional(
        "replace.null.with.default",
        ValueKind::Bool,
        "true",
        "JsonConverter: whether null becomes the schema's default, where it has one",
    ),
    KeyDef::unset(
        "schema.content",
        ValueKind::Text,
        "JsonConverter: the schema, in JSON, of values that come without one",
    ),
    KeyDef::optional(
        "schemas.cache.size",
        ValueKind::at_least(0),
        "1000",
        "JsonConverter: schemas that are kept, so that records of one kind share one",
    ),
    KeyDef::optional(
        "decimal.format",
        ValueKind::OneOf(&["BASE64", "NUMERIC"]),
        "BASE64",
        "JsonConverter: how decimals are written; both are read",
    ),
    KeyDef::optional(
        "converter.encoding",
        ValueKind::Text,
        "UTF-8",
        "StringConverter: the encoding of texts",
    ),
    KeyDef::unset(
        "converter.type",
        ValueKind::OneOf(&["key", "value", "header"]),
        "what is converted; known by where the converter is named",
    ),
];

/// Settings of a converter; which version of it is wanted is none.
fn settings<'a>(file: &'a Properties, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let all = file.with_prefix(prefix);
    all.filter(|(name, _)| *name != "plugin.version")
}

impl ConvertersConfig {
    /// Resolves the three; what is odd goes into `problems`.
    pub(super) fn resolve(
        connector: &Properties,
        worker: &Properties,
        problems: &mut Vec<ConfigProblem>,
    ) -> Self {
        let mut of = |key| ConverterConfig::resolve(key, connector, worker, problems);
        let resolved = Self {
            key: of("key.converter"),
            value: of("value.converter"),
            header: of("header.converter"),
        };
        let Self { key, value, header } = &resolved;
        let wrong = [
            key.wrong(convert::find),
            value.wrong(convert::find),
            header.wrong(convert::find_header),
        ];
        problems.extend(wrong.into_iter().flatten());
        resolved
    }

    /// The converters, new ones for each task: they keep schemas that they have seen.
    ///
    /// # Errors
    /// None after the configuration was loaded, which makes them once to see whether they can be had.
    pub fn make(&self) -> Result<Converters, ConverterConfigError> {
        Ok(Converters {
            key: convert::find(&self.key.class, &self.key.settings)?,
            value: convert::find(&self.value.class, &self.value.settings)?,
            header: convert::find_header(&self.header.class, &self.header.settings)?,
        })
    }
}
