//! Names of tables and columns.

use std::fmt;

/// What stands for the topic's name in `table.name.format`.
pub(super) const TOPIC: &str = "${topic}";

/// Longest name in bytes: PostgreSQL cuts off what is longer, and two tables become one.
const NAME_BYTES_MAX: usize = 63;

/// A table, perhaps with its schema; without one it is looked for along the search path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TableName {
    pub(super) schema: Option<String>,
    pub(super) table: String,
}

impl TableName {
    /// The table of a topic. Dots of the format part the schema from the table, those of the topic become `_`.
    pub(super) fn of(format: &str, topic: &str) -> Result<Self, String> {
        let topic = topic.replace('.', "_");
        let mut parts = format.split('.').map(|part| part.replace(TOPIC, &topic));
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        if parts.next().is_some() {
            return Err("names more than a schema and a table".to_owned());
        }
        let name = match second {
            Some(table) => Self {
                schema: Some(first),
                table,
            },
            None => Self {
                schema: None,
                table: first,
            },
        };
        for part in name.schema.iter().chain([&name.table]) {
            check(part)?;
        }
        Ok(name)
    }
}

/// Quoted, as it stands in statements.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", quoted(schema))?;
        }
        f.write_str(&quoted(&self.table))
    }
}

/// Whether PostgreSQL takes a name whole.
pub(super) fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("has an empty name".to_owned());
    }
    if name.contains('\0') {
        return Err("has a name with a zero byte".to_owned());
    }
    if name.contains("${") {
        return Err("has a placeholder that isn't known; only ${topic} is".to_owned());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!(
            "gives the name {name}, which is longer than {NAME_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

/// A name in double quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_of_the_format_part_and_those_of_the_topic_do_not() {
        let name = |format, topic| TableName::of(format, topic).map(|name| name.to_string());
        for (format, topic, expected) in [
            ("${topic}", "orders", "\"orders\""),
            ("${topic}", "shop.orders", "\"shop_orders\""),
            ("s.${topic}", "a.b", "\"s\".\"a_b\""),
            ("k_${topic}_x", "a\"b", "\"k_a\"\"b_x\""),
        ] {
            assert_eq!(name(format, topic), Ok(expected.to_owned()));
        }
        for (format, topic) in [
            ("a.b.c", "t"),
            ("a.", "t"),
            ("${x}", "t"),
            ("${topic}", &*"t".repeat(64)),
        ] {
            assert!(name(format, topic).is_err(), "{format}");
        }
    }
}
