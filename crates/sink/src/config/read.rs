//! Reads values as their definitions say.

use std::str::FromStr;
use std::time::Duration;

use super::keys::{Table, find, parse_bool};

/// Reads values as their definitions say: what isn't set has the default of its key, and so has what
/// isn't a value of its key's, which the checks have told.
pub(super) struct Reader<'a, F> {
    tables: &'a [Table],
    value: F,
}

impl<'v, F: Fn(&str) -> Option<&'v str>> Reader<'_, F> {
    /// A reader of keys of these tables; `value` finds what is set.
    pub(super) const fn new(tables: &[Table], value: F) -> Reader<'_, F> {
        Reader { tables, value }
    }

    /// The text, or the default; `None` where there is neither, or it is empty.
    pub(super) fn text(&self, name: &str) -> Option<&'v str> {
        let known = find(self.tables, name);
        debug_assert!(known.is_some(), "{name} has no definition");
        let def = &known?.def;
        let set = (self.value)(name).map(str::trim);
        set.filter(|value| def.kind.check(value).is_ok())
            .or(def.default)
            .filter(|value| !value.is_empty())
    }

    /// The same, as the caller's own.
    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// A number; `None` where there is no default, either.
    pub(super) fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// A number whose key has a default.
    pub(super) fn count<T: FromStr + Default>(&self, name: &str) -> T {
        self.number(name).unwrap_or_default()
    }

    /// Milliseconds of a key that has a default.
    pub(super) fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(self.count(name))
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.text(name).and_then(parse_bool).unwrap_or_default()
    }

    /// Whether the value of a key is this word, in any case.
    pub(super) fn is(&self, name: &str, word: &str) -> bool {
        let value = self.text(name);
        value.is_some_and(|value| value.eq_ignore_ascii_case(word))
    }

    /// The items of a list, without blanks around them and without empty ones.
    pub(super) fn list(&self, name: &str) -> impl Iterator<Item = &'v str> {
        items(self.text(name).unwrap_or_default())
    }
}

/// The items of a list, without blanks around them and without empty ones.
pub(super) fn items(list: &str) -> impl Iterator<Item = &str> {
    let items = list.split(',').map(str::trim);
    items.filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::keys::CONNECTOR;
    use super::*;

    #[test]
    fn what_is_not_set_or_no_value_has_the_default_of_its_key() {
        let file = [("tasks.max", " 3 "), ("errors.retry.timeout", "soon")];
        let find = |name: &str| file.iter().find(|(key, _)| *key == name);
        let reader = Reader::new(&[CONNECTOR], |name: &str| Some(find(name)?.1));
        assert_eq!(reader.count::<u32>("tasks.max"), 3);
        assert_eq!(reader.count::<i64>("errors.retry.timeout"), 0);
        assert_eq!(reader.millis("task.restart.max.ms").as_secs(), 60);
        assert!(reader.is("errors.tolerance", "None"));
        assert!(!reader.flag("errors.log.enable"));
        assert_eq!(reader.text("topics"), None);
    }
}
