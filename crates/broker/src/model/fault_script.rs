//! Faults as a text file: `sharegroup broker --fault FILE`, [`FaultScript::parse`].
//!
//! One rule a line: when, a colon, what. `#` begins a comment.
//!
//! ```text
//! seed 7                                   # decides the chances; 0 where it isn't given
//! ShareFetch: delay 50ms                   # every one
//! ShareFetch orders-1 first 3: error NOT_LEADER_OR_FOLLOWER
//! ShareAcknowledge after 10 first 1: cut after
//! Produce 5%: cut after
//! any 1%: cut before
//! Produce orders-0 after 100 first 1: withhold
//! ShareFetch 10%: duplicate
//! ShareFetch orders-0 first 2: flip bit
//! every 10s: move leader orders-0 to next
//! at 8s: move coordinator billing to 2
//! at 12s: crash 1
//! every 30s first 3: crash 2 for 2s
//! at 20s: set group billing share.record.lock.duration.ms=20000
//! ```
//!
//! # When
//!
//! | begins with | waits for |
//! | --- | --- |
//! | `API`, `API TOPIC-PARTITION` | a request, named as Kafka names it (`ShareFetch`), or `any`; with a partition only requests about it: of Produce, Fetch, ListOffsets, ShareFetch and ShareAcknowledge, or `any` of these. Acknowledgements on a ShareFetch count as ShareAcknowledge |
//! | `at DURATION` | this time after the start: `500ms`, `5s`, `2m`, `1h` |
//! | `every DURATION` | the same again and again |
//!
//! Behind that, in any order: `after N` lets the first N pass, `first N` strikes N times and no more,
//! `P%` strikes with this chance.
//!
//! # What
//!
//! | written | does |
//! | --- | --- |
//! | `error NAME` | the request is not looked at and answered with this error, or only its partition is |
//! | `delay DURATION` | it is worked on, and answered so much later |
//! | `cut before`, `cut after` | the connection is cut before it is worked on, or in place of the answer |
//! | `withhold`, `duplicate` | it is never answered; it is answered twice |
//! | `flip bit` | in the records of an answer a bit flips: which one, and of which batch, is chance. Waits for answers with records, of ShareFetch and Fetch; with `any`, of both, as where a batch is corrupt in the log |
//! | `cut batch` | the records of an answer end in the middle of the last batch. Waits as `flip bit` |
//! | `move leader TOPIC-PARTITION to BROKER` | another leader; `next` is the one behind the present one |
//! | `move coordinator GROUP to BROKER` | another coordinator of a group, or of a transactional id |
//! | `crash BROKER [for DURATION]` | connections, share sessions and locks are gone, and delivery counts that were never stored, as with a real broker that is killed; it takes connections again at once, or after the time, and leads what it led |
//! | `set group GROUP KEY=VALUE`, `set broker KEY=VALUE` | a configuration changes, such as a lock's duration |
//!
//! The first seven are for requests alone; the others may also wait for a request, and happen before it
//! is looked at. Every rule looks at each request for itself; where several say what becomes of it, the
//! first line counts.

use std::fmt;
use std::str::SplitWhitespace;
use std::time::Duration;

use sharegroup_wire::message::fetch::FetchRequest;
use sharegroup_wire::message::share_fetch::ShareFetchRequest;
use sharegroup_wire::{BrokerId, ErrorCode};

use super::Model;
use super::config::{Change, Configs, Values, find, keys};
use super::damage::Damage;
use super::faults::{Fault, Incident, Owner, Rule, Target, What, When};
use crate::api;

/// What a file says is to go wrong.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FaultScript {
    /// Decides what chances come to.
    pub seed: u64,
    /// The rules, each with the number of its line.
    pub rules: Vec<(usize, Rule)>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError {
    /// Its number, from 1 on.
    pub line: usize,
    /// What is wrong, and what to write instead.
    pub problem: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for ScriptError {}

impl FaultScript {
    /// Reads a file's text; the module's documentation describes it.
    ///
    /// # Errors
    /// Every line that is wrong.
    pub fn parse(text: &str) -> Result<Self, Vec<ScriptError>> {
        let mut script = Self::default();
        let mut errors = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let number = index + 1;
            let read = match line.strip_prefix("seed ") {
                Some(seed) => whole(seed.trim()).map(|seed| script.seed = seed),
                None => rule(line).map(|rule| script.rules.push((number, rule))),
            };
            errors.extend(read.err().map(|problem| ScriptError {
                line: number,
                problem,
            }));
        }
        if errors.is_empty() {
            Ok(script)
        } else {
            Err(errors)
        }
    }

    /// Looks for brokers that a cluster doesn't have, and for values that it would refuse.
    ///
    /// # Errors
    /// Every line that is wrong.
    pub fn check(&self, model: &Model) -> Result<(), Vec<ScriptError>> {
        let mut configs = model.configs.clone();
        let mut errors = Vec::new();
        for (line, rule) in &self.rules {
            let What::Cluster(incident) = &rule.what else {
                continue;
            };
            let checked =
                check_brokers(incident, model).and_then(|()| try_change(incident, &mut configs));
            errors.extend(checked.err().map(|problem| ScriptError {
                line: *line,
                problem,
            }));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }
}

fn check_brokers(incident: &Incident, model: &Model) -> Result<(), String> {
    let broker = match incident {
        Incident::LeaderMove { to, .. } | Incident::CoordinatorMove { to, .. } => match to {
            Target::Broker(broker) => *broker,
            Target::Next => return Ok(()),
        },
        Incident::Crash { broker, .. } => *broker,
        Incident::Change { .. } => return Ok(()),
    };
    if model.brokers().any(|known| known == broker) {
        return Ok(());
    }
    let known: Vec<String> = model.brokers().map(|known| known.0.to_string()).collect();
    Err(format!(
        "there is no broker {broker}; there is {}",
        known.join(", ")
    ))
}

fn try_change(incident: &Incident, configs: &mut Configs) -> Result<(), String> {
    let Incident::Change { owner, key, value } = incident else {
        return Ok(());
    };
    let change = [(key.as_str(), Change::Set(value))];
    match owner {
        Owner::Broker => {
            configs.broker = configs.changed(keys::BROKER, &configs.broker, &change)?
        }
        Owner::Group(group_id) => {
            let values = configs.groups.get(group_id).cloned();
            let values = values.unwrap_or_else(Values::new);
            let values = configs.changed(keys::GROUP, &values, &change)?;
            configs.groups.insert(group_id.clone(), values);
        }
    }
    Ok(())
}

fn rule(line: &str) -> Result<Rule, String> {
    let (when, what) = line
        .split_once(':')
        .ok_or("has no colon; write `WHEN: WHAT`, such as `ShareFetch first 1: cut after`")?;
    let mut words = Words::of(when);
    let when = read_when(&mut words)?;
    let mut rule = Rule::new(when, What::Request(Fault::None));
    while let Some(word) = words.next() {
        match word {
            "after" => rule.after = words.number("after")?,
            "first" => rule.first = Some(words.number("first")?),
            chance if chance.ends_with('%') => rule.chance = Some(percent(chance)?),
            _ => return Err(format!("`{word}` is none of `after N`, `first N` and `P%`")),
        }
    }
    let mut words = Words::of(what);
    rule.what = read_what(&mut words)?;
    if let Some(word) = words.next() {
        return Err(format!("`{word}` is too much"));
    }
    let waits_for_time = !matches!(rule.when, When::Request { .. });
    if waits_for_time && !matches!(rule.what, What::Cluster(_)) {
        return Err(
            "`at` and `every` let something happen to the cluster: move, crash or set; what \
             becomes of a request waits for one: `API: …`"
                .to_owned(),
        );
    }
    if matches!(rule.what, What::Records(_)) {
        check_answers(&rule.when)?;
    }
    Ok(rule)
}

/// Only some answers have records.
fn check_answers(when: &When) -> Result<(), String> {
    const WITH_RECORDS: [i16; 2] = [FetchRequest::API_KEY, ShareFetchRequest::API_KEY];
    match when {
        When::Request {
            api_key: Some(key), ..
        } if !WITH_RECORDS.contains(key) => {
            Err("only the answers of ShareFetch and Fetch have records".to_owned())
        }
        _ => Ok(()),
    }
}

/// The words of one side of a rule.
struct Words<'a>(std::iter::Peekable<SplitWhitespace<'a>>);

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        Self(text.split_whitespace().peekable())
    }

    fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// The next word, which is `what`.
    fn expect(&mut self, what: &str) -> Result<&'a str, String> {
        self.next()
            .ok_or_else(|| format!("ends where {what} is expected"))
    }

    /// The next word, which must be `word`.
    fn skip(&mut self, word: &str) -> Result<(), String> {
        match self.next() {
            Some(next) if next == word => Ok(()),
            Some(next) => Err(format!("`{next}` stands where `{word}` is expected")),
            None => Err(format!("ends where `{word}` is expected")),
        }
    }

    fn number(&mut self, behind: &str) -> Result<u64, String> {
        whole(self.expect(&format!("a number behind `{behind}`"))?)
    }

    fn duration(&mut self) -> Result<Duration, String> {
        duration(self.expect("a duration such as 500ms or 5s")?)
    }

    fn target(&mut self) -> Result<Target, String> {
        match self.expect("a broker's id, or `next`,")? {
            "next" => Ok(Target::Next),
            id => broker(id).map(Target::Broker),
        }
    }
}

/// APIs whose requests tell their partitions to rules.
const WITH_PARTITIONS: [&str; 5] = [
    "Produce",
    "Fetch",
    "ListOffsets",
    "ShareFetch",
    "ShareAcknowledge",
];

fn read_when(words: &mut Words<'_>) -> Result<When, String> {
    let api = match words.expect("an API, `any`, `at` or `every`")? {
        "at" => return words.duration().map(When::At),
        "every" => {
            let word = words.expect("a duration such as 500ms or 5s")?;
            let interval = duration(word)?;
            if interval.is_zero() {
                return Err(format!(
                    "`every {word}` would never end; write a longer time"
                ));
            }
            return Ok(When::Every(interval));
        }
        name => name,
    };
    let api_key = if api == "any" {
        None
    } else {
        Some(api_key(api)?)
    };
    let is_modifier = |word: &&str| matches!(*word, "after" | "first") || word.ends_with('%');
    let partition = words.0.next_if(|word| !is_modifier(word));
    let partition = partition.map(topic_partition).transpose()?;
    if partition.is_some() && api != "any" && !WITH_PARTITIONS.contains(&api) {
        return Err(format!(
            "{api} can't wait for a partition; {} can",
            WITH_PARTITIONS.join(", ")
        ));
    }
    Ok(When::Request { api_key, partition })
}

fn api_key(name: &str) -> Result<i16, String> {
    if let Some(api) = api::APIS.iter().find(|api| api.name == name) {
        return Ok(api.key);
    }
    if let Some(api) = api::APIS.iter().find(|api| is_alike(api.name, name)) {
        return Err(format!(
            "`{name}` is not an API; did you mean {}?",
            api.name
        ));
    }
    let names: Vec<&str> = api::APIS.iter().map(|api| api.name).collect();
    Err(format!(
        "`{name}` is none of `at`, `every`, `any` and the APIs {}",
        names.join(", ")
    ))
}

/// Whether names differ, besides in case, in one place of at most two characters.
fn is_alike(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
    let is_same = |(a, b): &(u8, u8)| a == b;
    let start = one.bytes().zip(other.bytes()).take_while(is_same);
    let end = one.bytes().rev().zip(other.bytes().rev());
    let same = start.count() + end.take_while(is_same).count();
    one.len().max(other.len()) <= same + 2
}

fn read_what(words: &mut Words<'_>) -> Result<What, String> {
    let request = |fault| Ok(What::Request(fault));
    let kind = words.expect("what is to happen")?;
    let incident = match kind {
        "error" => return request(Fault::Error(error_code(words.expect("an error's name")?)?)),
        "delay" => return request(Fault::Delay(words.duration()?)),
        "withhold" => return request(Fault::Withhold),
        "duplicate" => return request(Fault::Duplicate),
        "cut" => match words.expect("`before`, `after` or `batch`")? {
            "before" => return request(Fault::CutBefore),
            "after" => return request(Fault::CutAfter),
            "batch" => return Ok(What::Records(Damage::CutBatch)),
            other => {
                return Err(format!(
                    "`cut {other}` is none of `cut before`, `cut after` and `cut batch`"
                ));
            }
        },
        "flip" => {
            words.skip("bit")?;
            return Ok(What::Records(Damage::FlipBit));
        }
        "move" => read_move(words)?,
        "crash" => Incident::Crash {
            broker: broker(words.expect("a broker's id")?)?,
            down: match words.0.next_if_eq(&"for") {
                Some(_) => words.duration()?,
                None => Duration::ZERO,
            },
        },
        "set" => read_change(words)?,
        other => {
            return Err(format!(
                "`{other}` is none of error, delay, cut, withhold, duplicate, flip, move, crash and set"
            ));
        }
    };
    Ok(What::Cluster(incident))
}

fn read_move(words: &mut Words<'_>) -> Result<Incident, String> {
    match words.expect("`leader` or `coordinator`")? {
        "leader" => {
            let (topic, partition) = topic_partition(words.expect("TOPIC-PARTITION")?)?;
            words.skip("to")?;
            let to = words.target()?;
            Ok(Incident::LeaderMove {
                topic,
                partition,
                to,
            })
        }
        "coordinator" => {
            let key = words.expect("a group")?.to_owned();
            words.skip("to")?;
            let to = words.target()?;
            Ok(Incident::CoordinatorMove { key, to })
        }
        other => Err(format!(
            "`move {other}` is neither `move leader` nor `move coordinator`"
        )),
    }
}

fn read_change(words: &mut Words<'_>) -> Result<Incident, String> {
    let (owner, table) = match words.expect("`group` or `broker`")? {
        "group" => (
            Owner::Group(words.expect("a group")?.to_owned()),
            keys::GROUP,
        ),
        "broker" => (Owner::Broker, keys::BROKER),
        other => {
            return Err(format!(
                "`set {other}` is neither `set group` nor `set broker`"
            ));
        }
    };
    let setting = words.expect("KEY=VALUE")?;
    let (key, value) = setting
        .split_once('=')
        .ok_or_else(|| format!("`{setting}` has no `=`; write KEY=VALUE"))?;
    if find(table, key).is_none() {
        return Err(format!("`{key}` is not a key that can be set there"));
    }
    Ok(Incident::Change {
        owner,
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

fn topic_partition(text: &str) -> Result<(String, i32), String> {
    let read = || {
        let (topic, partition) = text.rsplit_once('-')?;
        let partition = partition.parse().ok().filter(|partition| *partition >= 0)?;
        (!topic.is_empty()).then(|| (topic.to_owned(), partition))
    };
    read().ok_or_else(|| format!("`{text}` is not written TOPIC-PARTITION, such as orders-0"))
}

fn error_code(name: &str) -> Result<ErrorCode, String> {
    let known = (-1..=i16::MAX).map(ErrorCode::from_code);
    let mut known = known.take_while(|code| !matches!(code, ErrorCode::Unknown(_)));
    known
        .find(|code| code.name() == name && !code.is_none())
        .ok_or_else(|| {
            format!("`{name}` is not one of Kafka's errors, such as NOT_LEADER_OR_FOLLOWER")
        })
}

fn broker(text: &str) -> Result<BrokerId, String> {
    let id = text.parse().ok().filter(|id| *id >= 0);
    id.map(BrokerId)
        .ok_or_else(|| format!("`{text}` is not a broker's id, such as 1"))
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a whole number"))
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok();
    number
        .filter(|percent| (0.0..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("`{text}` is not a chance from 0% to 100%"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    let number = number.parse::<u64>().ok().filter(|_| unit_ms > 0);
    number
        .and_then(|number| number.checked_mul(unit_ms))
        .filter(|ms| *ms <= LONGEST_MS)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is not a duration such as 500ms, 5s, 2m or 1h"))
}

/// A year: longer ones would overflow the clock.
const LONGEST_MS: u64 = 366 * 24 * 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelConfig;

    /// The example of the module's documentation.
    fn example() -> String {
        let text = include_str!("fault_script.rs");
        let mut parts = text.split("//! ```");
        let example = parts.nth(1).unwrap().trim_start_matches("text\n");
        example.replace("//! ", "")
    }

    #[test]
    fn the_documented_example_is_read_as_it_is_meant() {
        let script = FaultScript::parse(&example()).unwrap();
        assert_eq!((script.seed, script.rules.len()), (7, 13));
        let request = |api_key, partition: Option<(&str, i32)>| When::Request {
            api_key,
            partition: partition.map(|(topic, index)| (topic.to_owned(), index)),
        };
        let rules: Vec<&Rule> = script.rules.iter().map(|(_, rule)| rule).collect();
        assert_eq!(
            *rules[0],
            Rule::new(
                request(Some(78), None),
                What::Request(Fault::Delay(Duration::from_millis(50)))
            )
        );
        assert_eq!(
            *rules[1],
            Rule {
                first: Some(3),
                ..Rule::new(
                    request(Some(78), Some(("orders", 1))),
                    What::Request(Fault::Error(ErrorCode::NotLeaderOrFollower))
                )
            }
        );
        assert_eq!((rules[2].after, rules[2].first), (10, Some(1)));
        assert_eq!(rules[4].when, request(None, None));
        assert_eq!(rules[4].chance, Some(0.01));
        assert_eq!(
            *rules[7],
            Rule {
                first: Some(2),
                ..Rule::new(
                    request(Some(78), Some(("orders", 0))),
                    What::Records(Damage::FlipBit)
                )
            }
        );
        assert_eq!(
            rules[10].what,
            What::Cluster(Incident::Crash {
                broker: BrokerId(1),
                down: Duration::ZERO
            })
        );
        assert_eq!(rules[11].when, When::Every(Duration::from_secs(30)));
    }

    #[test]
    fn a_wrong_line_is_named_with_what_to_write() {
        for (line, says) in [
            ("ShareFetch", "has no colon"),
            ("sharefetch: withhold", "did you mean ShareFetch?"),
            ("ShareFetsh: withhold", "did you mean ShareFetch?"),
            ("ShareFtech: withhold", "did you mean ShareFetch?"),
            ("Share: withhold", "the APIs Produce, Fetch"),
            ("Metadata orders-0: withhold", "can't wait for a partition"),
            ("Produce orders: withhold", "not written TOPIC-PARTITION"),
            ("Produce 101%: withhold", "chance from 0% to 100%"),
            ("Produce first: withhold", "a number behind `first`"),
            ("Produce first many: withhold", "not a whole number"),
            ("Produce orders-0 sometimes: withhold", "none of `after N`"),
            ("Produce: error NOT_LEADER", "not one of Kafka's errors"),
            ("Produce: error NONE", "not one of Kafka's errors"),
            ("Produce: delay 5", "not a duration"),
            ("Produce: delay 99999999999h", "not a duration"),
            ("Produce: cut", "`before`, `after` or `batch`"),
            ("Produce: cut now", "none of `cut before`"),
            ("ShareFetch: flip", "ends where `bit`"),
            ("Produce: flip bit", "only the answers of ShareFetch"),
            ("at 5s: cut batch", "waits for one"),
            ("Produce: explode", "none of error, delay"),
            ("Produce: withhold it", "`it` is too much"),
            ("Produce:", "what is to happen"),
            ("at 5s: withhold", "waits for one"),
            ("at noon: crash 1", "not a duration"),
            ("every 0ms: crash 1", "`every 0ms` would never end"),
            ("at 5s: move leader orders-0 2", "where `to` is expected"),
            ("at 5s: move leader orders-0 to two", "not a broker's id"),
            ("at 5s: set group g share.lock=1", "not a key"),
            ("at 5s: set topic t a=1", "neither `set group`"),
            ("seed seven", "not a whole number"),
        ] {
            let text = format!("# one\n\n{line}\nat 1s: crash 1 # fine\n");
            let errors = FaultScript::parse(&text).unwrap_err();
            assert_eq!(errors.len(), 1, "{line}: {errors:?}");
            assert_eq!(errors[0].line, 3, "{line}");
            assert!(errors[0].problem.contains(says), "{line}: {}", errors[0]);
        }
        let errors = FaultScript::parse("a\nb\n").unwrap_err();
        assert_eq!(errors.len(), 2, "all at once");
    }

    #[test]
    fn a_script_is_checked_against_the_cluster() {
        let mut model = Model::new(std::time::Instant::now(), ModelConfig::default());
        let text = "at 1s: crash 2\nat 1s: move leader a-0 to next\n\
                    at 2s: set group g share.record.lock.duration.ms=2000";
        let script = FaultScript::parse(text).unwrap();
        let errors = script.check(&model).unwrap_err();
        let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [1, 3], "{errors:?}");
        assert!(errors[0].to_string().contains("there is no broker 2"));
        let key = "group.share.min.record.lock.duration.ms".to_owned();
        model.configs.broker.insert(key, "1000".to_owned());
        assert_eq!(script.check(&model).unwrap_err().len(), 1);
    }
}
