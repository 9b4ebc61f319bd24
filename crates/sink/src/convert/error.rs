//! What can go wrong with a converter.

use crate::data::{DataError, join_path};

/// Why bytes were not converted, or a value was not written. Bytes that fail once fail always: none of
/// these passes by itself. Texts tell places and types, never what a record contains.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The bytes aren't JSON.
    #[error("not JSON at byte {at}: {reason}")]
    Json {
        /// What is wrong.
        reason: &'static str,
        /// Where, counted from 0.
        at: usize,
    },
    /// JSON without the envelope that `schemas.enable` promises.
    #[error(
        "schemas.enable=true needs an object of exactly `schema` and `payload`, found {found}; for plain JSON set \
         schemas.enable=false on the converter"
    )]
    Envelope {
        /// What is there.
        found: String,
    },
    /// The schema that came with the value can't be one.
    #[error("schema of the value: {0}")]
    Schema(String),
    /// A value that doesn't fit its schema.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A value that would lose something on its way into the schema's type. With `json.lenient=true`
    /// it is converted as Java's converter does it.
    #[error("{reason}{}", at(.path))]
    Loss {
        /// What would be lost.
        reason: String,
        /// Where it stands in the value, from the outside in; empty = the value itself.
        path: String,
    },
    /// A value that the format has no place for.
    #[error("{converter} can't write {found}: {reason}")]
    Unwritable {
        /// The converter.
        converter: &'static str,
        /// Type of the value.
        found: &'static str,
        /// Why.
        reason: String,
    },
}

impl ConvertError {
    /// Whether the same bytes may convert later.
    #[must_use]
    pub const fn is_retriable(&self) -> bool {
        false
    }

    pub(crate) fn loss(reason: impl Into<String>) -> Self {
        Self::Loss {
            reason: reason.into(),
            path: String::new(),
        }
    }

    /// The same, inside of a field or element.
    pub(crate) fn within(self, outer: &str) -> Self {
        match self {
            Self::Loss { reason, path } => Self::Loss {
                reason,
                path: join_path(outer, &path),
            },
            Self::Data(error) => Self::Data(error.within(outer)),
            other => other,
        }
    }
}

fn at(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!(" at `{path}`")
    }
}

/// Why a converter can't be had as configured. The fault of whoever wrote the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConverterConfigError {
    /// No converter of this name.
    #[error("no converter `{class}`; there are {known}")]
    UnknownClass {
        /// The name that was given.
        class: String,
        /// The names that there are.
        known: String,
    },
    /// A converter of Kafka's that isn't built yet.
    #[error("converter `{class}` is not here yet; there are {known}")]
    NotHereYet {
        /// The name that was given.
        class: String,
        /// The names that there are.
        known: String,
    },
    /// A value that isn't one of the key's.
    #[error("`{key}`: invalid value; expected {expected}")]
    InvalidValue {
        /// The key, without the converter's prefix.
        key: &'static str,
        /// What it may be.
        expected: String,
    },
}

impl ConverterConfigError {
    pub(crate) fn invalid(key: &'static str, expected: impl Into<String>) -> Self {
        Self::InvalidValue {
            key,
            expected: expected.into(),
        }
    }
}
