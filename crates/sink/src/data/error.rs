//! Why a schema or a value can't be.

use super::Type;

/// Why a schema can't be built, or a value doesn't fit its schema. The fault of whoever made it; no
/// other try helps. Texts name fields and types, never values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A schema without what its type needs, or with what its type can't have.
    #[error("schema of type {type_of}: {reason}")]
    Schema {
        /// The schema's type.
        type_of: Type,
        /// What is wrong.
        reason: String,
    },
    /// A null where the schema is required and has no default.
    #[error("null for a required {type_of}{}", at(.path))]
    Null {
        /// The schema's type.
        type_of: Type,
        /// Where it stands in the value, from the outside in; empty = the value itself.
        path: String,
    },
    /// A value of another type than its schema has.
    #[error("{found} where the schema has {expected}{}", at(.path))]
    Mismatch {
        /// The schema's type, or its logical name.
        expected: String,
        /// The value's type.
        found: &'static str,
        /// Where it stands in the value, from the outside in; empty = the value itself.
        path: String,
    },
}

impl DataError {
    /// The same, inside of a field or element.
    pub(crate) fn within(mut self, outer: &str) -> Self {
        if let Self::Null { path, .. } | Self::Mismatch { path, .. } = &mut self {
            *path = join_path(outer, path);
        }
        self
    }
}

/// The path of `inner`, seen from outside of `outer`: `a`, `a.b`, `a[]`. Bounded, since each level of
/// nesting adds to it.
pub(crate) fn join_path(outer: &str, inner: &str) -> String {
    if inner.len() + outer.len() > PATH_BYTES_MAX {
        return format!("{outer}.…");
    }
    match inner {
        "" => outer.to_owned(),
        _ if inner.starts_with('[') => format!("{outer}{inner}"),
        _ => format!("{outer}.{inner}"),
    }
}

fn at(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!(" at `{path}`")
    }
}

/// Longest path in an error's text.
const PATH_BYTES_MAX: usize = 256;
