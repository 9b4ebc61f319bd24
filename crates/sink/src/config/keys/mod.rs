//! The keys that are known: what each may hold, its default, and what it does here.
//!
//! One definition per key feeds reading ([`Reader`](super::read::Reader)), the checks, `describe` and
//! `docs/configuration.md`. Sources: the configuration definitions of Kafka 4.4's `WorkerConfig`,
//! `ConnectorConfig`, `SinkConnectorConfig`, `ConsumerConfig` and `ProducerConfig`, and the keys of
//! this runtime (`share.*`, `task.restart.*`).

mod connector;
mod consumer;
mod kind;
mod nearest;
mod producer;
mod share;
mod worker;

pub(super) use connector::CONNECTOR;
pub(super) use consumer::CONSUMER;
pub use kind::ValueKind;
pub(super) use kind::parse_bool;
pub use nearest::nearest;
pub(super) use producer::PRODUCER;
pub(super) use share::SHARE;
pub(super) use worker::{WORKER, WORKER_CLIENT};

/// How much a key matters, in Kafka's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// Look at it first.
    High,
    /// Of use to some.
    Medium,
    /// Rarely changed.
    Low,
}

impl Importance {
    /// As Kafka Connect's REST API writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "HIGH",
            Self::Medium => "MEDIUM",
            Self::Low => "LOW",
        }
    }
}

/// One configuration key.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KeyDef {
    /// The key.
    pub name: &'static str,
    /// What its value may be.
    pub kind: ValueKind,
    /// Whether it must be set.
    pub required: bool,
    /// Its value if it isn't set.
    pub default: Option<&'static str>,
    /// How much it matters.
    pub importance: Importance,
    /// Heading under which it is described.
    pub group: &'static str,
    /// What it does, in a sentence without capital and full stop.
    pub doc: &'static str,
    /// The key that it is another name of.
    pub alias_of: Option<&'static str>,
}

impl KeyDef {
    /// A key that must be set.
    #[must_use]
    pub const fn required(name: &'static str, kind: ValueKind, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            required: true,
            default: None,
            importance: Importance::High,
            group: "Sink",
            doc,
            alias_of: None,
        }
    }

    /// A key with a default.
    #[must_use]
    pub const fn optional(
        name: &'static str,
        kind: ValueKind,
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        Self {
            default: Some(default),
            ..Self::unset(name, kind, doc)
        }
    }

    /// A key that may be left out, and has no value then.
    #[must_use]
    pub const fn unset(name: &'static str, kind: ValueKind, doc: &'static str) -> Self {
        Self {
            required: false,
            importance: Importance::Medium,
            ..Self::required(name, kind, doc)
        }
    }

    /// The same key with another importance; that of a required one is high, else medium.
    #[must_use]
    pub const fn importance(mut self, importance: Importance) -> Self {
        self.importance = importance;
        self
    }

    /// The same key as another name of this one.
    #[must_use]
    pub const fn alias_of(mut self, name: &'static str) -> Self {
        self.alias_of = Some(name);
        self.importance = Importance::Low;
        self
    }

    /// The same key under another heading than `Sink`.
    #[must_use]
    pub const fn group(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }
}

/// What setting a key does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// What its documentation says.
    Acts,
    /// Nothing, for good: the reason.
    Ignored(&'static str),
    /// Nothing yet: what works instead today.
    Later(&'static str),
    /// Work with it would go wrong: the reason, and what to do.
    Refused(&'static str),
}

/// A key of Kafka's or of this runtime. A name that ends in `*` stands for all keys that start
/// with what is before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) def: KeyDef,
    pub(super) effect: Effect,
}

/// Known keys, one list per heading.
pub(super) type Table = &'static [&'static [Known]];

impl Known {
    pub(super) fn is(&self, key: &str) -> bool {
        match self.def.name.strip_suffix('*') {
            Some(prefix) => key.starts_with(prefix),
            None => key == self.def.name,
        }
    }

    pub(super) fn is_family(&self) -> bool {
        self.def.name.ends_with('*')
    }

    /// Whether setting the key to `value` is the same as leaving it out.
    pub(super) fn is_default(&self, value: &str) -> bool {
        let default = self.def.default;
        default.is_some_and(|default| default.eq_ignore_ascii_case(value.trim()))
    }

    pub(super) const fn or(mut self, default: &'static str) -> Self {
        self.def.default = Some(default);
        self
    }

    const fn must(mut self) -> Self {
        self.def.required = true;
        self.high()
    }

    pub(super) const fn high(mut self) -> Self {
        self.def.importance = Importance::High;
        self
    }

    pub(super) const fn low(mut self) -> Self {
        self.def.importance = Importance::Low;
        self
    }

    pub(super) const fn but(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }
}

/// The definition of a key. A key's own line counts before its family's.
pub(super) fn find(tables: &[Table], key: &str) -> Option<&'static Known> {
    all(tables)
        .find(|known| !known.is_family() && known.is(key))
        .or_else(|| all(tables).find(|known| known.is_family() && known.is(key)))
}

/// Every definition, in the order in which they are described.
pub(super) fn all(tables: &[Table]) -> impl Iterator<Item = &'static Known> {
    tables
        .iter()
        .flat_map(|table| table.iter().copied().flatten())
}

/// Names of single keys.
pub(super) fn names(tables: &[Table]) -> impl Iterator<Item = &'static str> {
    let single = all(tables).filter(|known| !known.is_family());
    single.map(|known| known.def.name)
}

pub(super) const fn acts(name: &'static str, kind: ValueKind, doc: &'static str) -> Known {
    Known {
        def: KeyDef::unset(name, kind, doc),
        effect: Effect::Acts,
    }
}

pub(super) const fn ignored(name: &'static str, why: &'static str) -> Known {
    acts(name, ValueKind::Text, why)
        .low()
        .but(Effect::Ignored(why))
}

/// A key whose presence alone is refused, as Kafka's share consumer does.
pub(super) const fn forbidden(name: &'static str, advice: &'static str) -> Known {
    acts(name, ValueKind::Text, advice)
        .low()
        .but(Effect::Refused(advice))
}

/// Keys under one heading.
pub(super) const fn under<const N: usize>(group: &'static str, mut keys: [Known; N]) -> [Known; N] {
    let mut index = 0;
    while index < N {
        keys[index].def.group = group;
        index += 1;
    }
    keys
}

const MS: ValueKind = ValueKind::at_least(0);
const INT: ValueKind = ValueKind::Int {
    min: 0,
    max: i32::MAX as i64,
};
const POSITIVE: ValueKind = ValueKind::Int {
    min: 1,
    max: i32::MAX as i64,
};

const NO_JVM: &str = "no Java classes are loaded";
const TUNED: &str = "the client tunes this itself";
const TOTALS: &str = "counters are kept as totals, without windows";
pub(super) const NO_REST: &str = "there is no REST listener yet";

/// What isn't there yet, and what happens instead. To let the keys of one act, put `Effect::Acts`.
const REST: Effect = Effect::Later(NO_REST);

#[cfg(test)]
mod tests {
    use super::super::security::SECURITY;
    use super::*;

    const ALL: [Table; 7] = [
        WORKER,
        WORKER_CLIENT,
        CONNECTOR,
        SHARE,
        CONSUMER,
        PRODUCER,
        SECURITY,
    ];

    #[test]
    fn no_key_is_in_a_table_twice() {
        for table in ALL {
            let mut names: Vec<_> = all(&[table]).map(|known| known.def.name).collect();
            names.sort_unstable();
            let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
            assert_eq!(twice, None);
        }
    }

    #[test]
    fn every_default_is_a_value_of_its_key() {
        for known in all(&ALL) {
            let name = known.def.name;
            // An empty one stands for a key that isn't set.
            if let Some(default) = known.def.default.filter(|default| !default.is_empty()) {
                assert_eq!(known.def.kind.check(default), Ok(()), "{name}");
            }
            assert!(
                !(known.def.required && known.def.default.is_some()),
                "{name}"
            );
        }
    }

    #[test]
    fn every_key_is_documented_under_a_heading() {
        for known in all(&ALL) {
            let (name, doc) = (known.def.name, known.def.doc);
            assert!(!doc.is_empty() && !doc.ends_with('.'), "{name}");
            assert_ne!(known.def.group, "Sink", "{name}");
        }
    }
}
