//! What a value may be.

use super::super::pattern::Pattern;

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueKind {
    /// Any text.
    Text,
    /// Text that isn't empty.
    NonBlank,
    /// Items separated by commas.
    List,
    /// `true` or `false`.
    Bool,
    /// A whole number from `min` to `max`.
    Int {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// One of these words, in any case.
    OneOf(&'static [&'static str]),
    /// The name of a class, in full or short.
    Class,
    /// A pattern in Java's syntax.
    Pattern,
    /// A secret: any text, never shown.
    Password,
}

impl ValueKind {
    /// A whole number of at least `min`.
    #[must_use]
    pub const fn at_least(min: i64) -> Self {
        Self::Int { min, max: i64::MAX }
    }

    /// Whether `value` is one of these.
    ///
    /// # Errors
    /// What the value should be, as the second half of a sentence.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let ok = match self {
            Self::Text | Self::List | Self::Password => return Ok(()),
            Self::Pattern => return Pattern::new(value.trim()).map(drop),
            Self::NonBlank | Self::Class => !value.trim().is_empty(),
            Self::Bool => parse_bool(value).is_some(),
            Self::Int { min, max } => value
                .trim()
                .parse::<i64>()
                .is_ok_and(|number| (*min..=*max).contains(&number)),
            Self::OneOf(words) => words
                .iter()
                .any(|word| word.eq_ignore_ascii_case(value.trim())),
        };
        if ok {
            return Ok(());
        }
        let allowed = self.allowed();
        Err(allowed.map_or_else(
            || "must not be empty".to_owned(),
            |allowed| format!("must be {allowed}"),
        ))
    }

    /// What is allowed, to be read after "must be"; `None` where the type says all.
    #[must_use]
    pub fn allowed(&self) -> Option<String> {
        match self {
            Self::Text | Self::List | Self::NonBlank => None,
            Self::Class | Self::Pattern | Self::Password => None,
            Self::Bool => Some("true or false".to_owned()),
            Self::Int { min, max: i64::MAX } => Some(format!("a whole number of at least {min}")),
            Self::Int { min, max } => Some(format!("a whole number from {min} to {max}")),
            Self::OneOf(words) => Some(format!("one of {}", words.join(", "))),
        }
    }

    /// The type, as Kafka Connect's REST API writes it.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Text | Self::NonBlank | Self::OneOf(_) | Self::Pattern => "STRING",
            Self::List => "LIST",
            Self::Bool => "BOOLEAN",
            Self::Int { max, .. } if *max <= i16::MAX as i64 => "SHORT",
            Self::Int { max, .. } if *max <= i32::MAX as i64 => "INT",
            Self::Int { .. } => "LONG",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        }
    }
}

pub(crate) fn parse_bool(value: &str) -> Option<bool> {
    let value = value.trim();
    if value.eq_ignore_ascii_case("true") {
        Some(true)
    } else if value.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_by_kind() {
        let port = ValueKind::Int { min: 1, max: 9 };
        assert!(port.check(" 9 ").is_ok());
        assert_eq!(
            port.check("10").unwrap_err(),
            "must be a whole number from 1 to 9"
        );
        assert_eq!(
            ValueKind::at_least(1).check("x").unwrap_err(),
            "must be a whole number of at least 1"
        );
        assert!(ValueKind::Bool.check("True").is_ok());
        assert!(ValueKind::Bool.check("yes").is_err());
        assert_eq!(
            ValueKind::OneOf(&["a", "b"]).check("c").unwrap_err(),
            "must be one of a, b"
        );
        assert!(ValueKind::Class.check(" ").is_err());
        assert!(ValueKind::Pattern.check("a(").is_err());
    }
}
