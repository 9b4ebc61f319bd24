//! Reading configuration files: Java properties, or JSON.
//!
//! The crate `java-properties` would read the first kind, but it refuses characters that Java
//! escapes as surrogate pairs, decodes one fixed encoding, and brings `regex` and `encoding_rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::problem::{ConfigProblem, HIDDEN, Severity, is_secret};
use super::providers::{PROVIDERS, Providers, Unresolved};
use super::text;

/// The keys and values of one file, with where each was written.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Properties {
    file: PathBuf,
    entries: BTreeMap<String, Entry>,
}

/// Without values: some are secrets.
impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Properties")
            .field("file", &self.file)
            .field("keys", &self.entries.keys())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    value: String,
    line: Option<u32>,
    /// What stands in the file, where a provider gave a part of the value.
    written: Option<String>,
    is_secret: bool,
}

impl Entry {
    const fn new(value: String, line: Option<u32>) -> Self {
        Self {
            value,
            line,
            written: None,
            is_secret: false,
        }
    }
}

impl Properties {
    /// Properties without entries that name `file` in their problems.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            entries: BTreeMap::new(),
        }
    }

    /// Reads a file of at most 1 MiB: JSON if its first character is `{` or `[`, else Java
    /// properties. It may be a pipe, and so block.
    ///
    /// Bytes that are valid UTF-8 are read as such, else as ISO-8859-1 (as Java reads them).
    /// A key that is written twice keeps its last value, with a warning in `problems`.
    ///
    /// # Errors
    /// The file can't be read or is neither format; the problem names the line. Where several lines are wrong, it is
    /// the last one's, and `problems` has the others.
    pub fn read(
        file: &Path,
        problems: &mut Vec<ConfigProblem>,
    ) -> Result<Self, Box<ConfigProblem>> {
        let text =
            text::read(file).map_err(|message| Box::new(ConfigProblem::of_file(file, message)))?;
        Self::parse(file, &text, problems)
    }

    /// Reads the text of a file, as [`Properties::read`] does.
    ///
    /// # Errors
    /// As [`Properties::read`].
    pub fn parse(
        file: &Path,
        text: &str,
        problems: &mut Vec<ConfigProblem>,
    ) -> Result<Self, Box<ConfigProblem>> {
        let mut properties = Self::new(file);
        if text.trim_start().starts_with(['{', '[']) {
            properties.parse_json(text)?;
        } else {
            properties.parse_properties(text, problems)?;
        }
        Ok(properties)
    }

    /// Sets a key.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let value = value.into();
        self.entries.insert(key.into(), Entry::new(value, None));
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.get(key).map(|entry| entry.value.as_str())
    }

    /// All keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|(key, entry)| (key.as_str(), entry.value.as_str()))
    }

    /// Keys and values whose key starts with `prefix`; the prefix is taken off.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.iter()
            .filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value)))
    }

    /// Keys that have another value in `other`, or are in one of the two alone; sorted.
    pub(super) fn changed_keys(&self, other: &Self) -> Vec<String> {
        let keys: BTreeSet<_> = self.entries.keys().chain(other.entries.keys()).collect();
        let changed = keys
            .into_iter()
            .filter(|key| self.get(key) != other.get(key));
        changed.cloned().collect()
    }

    /// The file these were read from.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// An error about `key`, with its place and its value (hidden for secrets) filled in.
    pub fn problem(&self, key: &str, message: impl Into<String>) -> ConfigProblem {
        let entry = self.entries.get(key);
        ConfigProblem {
            severity: Severity::Error,
            file: self.file.clone(),
            line: entry.and_then(|entry| entry.line),
            key: Some(key.to_owned()),
            value: self.shown(key).map(str::to_owned),
            message: message.into(),
            advice: None,
        }
    }

    /// What may be shown of a value: that of a secret key is `[hidden]`, and where a provider gave it,
    /// it is the reference that stands in the file.
    #[must_use]
    pub fn shown(&self, key: &str) -> Option<&str> {
        let entry = self.entries.get(key)?;
        if entry.is_secret || is_secret(key) {
            return Some(HIDDEN);
        }
        Some(entry.written.as_deref().unwrap_or(&entry.value))
    }

    /// Never shows the value of `key`, whatever its name is.
    pub(super) fn hide(&mut self, key: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.is_secret = true;
        }
    }

    /// Puts what providers have in the place of references to it. The answer: keys whose references have no value.
    pub(super) fn resolve(
        &mut self,
        providers: &mut Providers,
        problems: &mut Vec<ConfigProblem>,
    ) -> Vec<String> {
        let mut failed = Vec::new();
        for (key, entry) in &mut self.entries {
            // What providers are made of can't come from them.
            if key.starts_with(PROVIDERS) {
                continue;
            }
            match providers.resolve(&entry.value) {
                Ok(None) => {}
                Ok(Some(value)) => {
                    entry.written = Some(std::mem::replace(&mut entry.value, value));
                }
                Err(unresolved) => failed.push((key.clone(), unresolved)),
            }
        }
        for (key, unresolved) in &failed {
            if let Unresolved::Wrong { message, advice } = unresolved {
                let mut problem = self.problem(key, message);
                problem.advice.clone_from(advice);
                problems.push(problem);
            }
        }
        failed.into_iter().map(|(key, _)| key).collect()
    }

    /// `{"key": "value", …}`, or `{"name": "…", "config": {…}}` as Kafka Connect's REST API takes it.
    fn parse_json(&mut self, text: &str) -> Result<(), Box<ConfigProblem>> {
        let file = self.file.clone();
        let wrong = |message: String| Box::new(ConfigProblem::of_file(&file, message));
        let value: Value =
            serde_json::from_str(text).map_err(|error| {
                wrong(format!(
                    "begins like JSON and is not JSON: {error}; write one JSON object, or lines of key=value"
                ))
            })?;
        let Value::Object(mut members) = value else {
            return Err(wrong(
                "must be one JSON object: {\"key\": \"value\", …}".to_owned(),
            ));
        };
        if let Some(Value::Object(config)) = members.remove("config") {
            let name = members.remove("name");
            if let Some(foreign) = members.keys().find(|key| *key != "initial_state") {
                return Err(wrong(format!(
                    "has \"{foreign}\" beside \"name\" and \"config\""
                )));
            }
            self.insert_json(config, text).map_err(&wrong)?;
            if let Some(name) = name {
                let name = json_text("name", &name)
                    .map_err(&wrong)?
                    .unwrap_or_default();
                match self.get("name") {
                    Some(inner) if inner != name => {
                        return Err(wrong(format!(
                            "names the connector twice: \"{name}\" and \"{inner}\""
                        )));
                    }
                    _ => self.insert_at("name".to_owned(), name, text),
                }
            }
            return Ok(());
        }
        self.insert_json(members, text).map_err(wrong)
    }

    fn insert_json(
        &mut self,
        members: serde_json::Map<String, Value>,
        text: &str,
    ) -> Result<(), String> {
        let mut wrong = Vec::new();
        for (key, value) in members {
            match json_text(&key, &value) {
                Ok(Some(value)) => self.insert_at(key, value, text),
                Ok(None) => {}
                Err(_) => wrong.push(format!("\"{key}\"")),
            }
        }
        match wrong.as_slice() {
            [] => Ok(()),
            keys => Err(no_scalar(&keys.join(", "))),
        }
    }

    /// Sets a key, with the line of the JSON text where it stands.
    fn insert_at(&mut self, key: String, value: String, text: &str) {
        let line = line_of_member(text, &key);
        self.entries.insert(key, Entry::new(value, line));
    }

    fn parse_properties(
        &mut self,
        text: &str,
        problems: &mut Vec<ConfigProblem>,
    ) -> Result<(), Box<ConfigProblem>> {
        let mut wrong = Vec::new();
        for (line, text) in logical_lines(text) {
            let (key, value) = split_pair(&text);
            let (key, value) = match unescape(key).and_then(|key| Ok((key, unescape(value)?))) {
                Ok(pair) => pair,
                Err(message) => {
                    let mut problem = ConfigProblem::of_file(&self.file, message);
                    problem.line = Some(line);
                    wrong.push(problem);
                    continue;
                }
            };
            // As Kafka does: blanks around a value never count.
            let value = value.trim_end().to_owned();
            let entry = Entry::new(value, Some(line));
            if let Some(first) = self.entries.insert(key.clone(), entry)
                && let Some(first_line) = first.line
            {
                problems.push(
                    self.problem(&key, format!("was set in line {first_line} already"))
                        .advice("this value counts")
                        .warning(),
                );
            }
        }
        let last = wrong.pop();
        problems.append(&mut wrong);
        last.map_or(Ok(()), |problem| Err(Box::new(problem)))
    }
}

/// The line in which a member of an object begins; `None` where its name is written with escapes.
fn line_of_member(text: &str, name: &str) -> Option<u32> {
    let quoted = format!("\"{name}\"");
    let is_member = |at: &usize| text[at + quoted.len()..].trim_start().starts_with(':');
    let mut places = text.match_indices(&quoted).map(|(at, _)| at);
    let at = places.find(is_member)?;
    u32::try_from(text[..at].matches('\n').count() + 1).ok()
}

/// A JSON scalar as text; `None` for null.
fn json_text(key: &str, value: &Value) -> Result<Option<String>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Bool(_) | Value::Number(_) => Ok(Some(value.to_string())),
        Value::Array(_) | Value::Object(_) => Err(no_scalar(&format!("\"{key}\""))),
    }
}

fn no_scalar(keys: &str) -> String {
    format!("has a list or an object as the value of {keys}")
}

const BLANKS: [char; 3] = [' ', '\t', '\x0c'];

/// Lines that are neither blank nor comments, continuation lines joined, with the number of their
/// first line.
fn logical_lines(text: &str) -> Vec<(u32, String)> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = Vec::new();
    let mut open: Option<(u32, String)> = None;
    for (number, line) in (1_u32..).zip(text.split('\n')) {
        let line = line.trim_start_matches(BLANKS);
        let (first, mut joined) = match open.take() {
            Some(open) => open,
            None if line.is_empty() || line.starts_with(['#', '!']) => continue,
            None => (number, String::new()),
        };
        let backslashes = line.len() - line.trim_end_matches('\\').len();
        if backslashes % 2 == 1 {
            joined.push_str(line.strip_suffix('\\').unwrap_or(line));
            open = Some((first, joined));
        } else {
            joined.push_str(line);
            lines.push((first, joined));
        }
    }
    lines.extend(open);
    lines
}

/// Splits at the first `=`, `:` or blank that isn't escaped.
fn split_pair(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .char_indices()
        .find(|(_, character)| {
            if escaped {
                escaped = false;
                return false;
            }
            escaped = *character == '\\';
            *character == '=' || *character == ':' || BLANKS.contains(character)
        })
        .map_or(line.len(), |(index, _)| index);
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(BLANKS);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, rest.trim_start_matches(BLANKS))
}

fn unescape(text: &str) -> Result<String, String> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    // UTF-16 units, since `\uXXXX` may be one half of a pair.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let plain = if character == '\\' {
            match characters.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some('u') => {
                    let digits: String = characters.by_ref().take(4).collect();
                    let unit = u16::from_str_radix(&digits, 16)
                        .ok()
                        .filter(|_| digits.len() == 4)
                        .ok_or_else(|| {
                            format!("has \\u{digits}, which is not \\u and four hex digits")
                        })?;
                    units.push(unit);
                    continue;
                }
                Some(other) => other,
                None => continue,
            }
        } else {
            character
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).map_err(|_| "has half a surrogate pair in \\u escapes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Properties, Box<ConfigProblem>> {
        Properties::parse(Path::new("x.properties"), text, &mut Vec::new())
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text)
            .unwrap()
            .iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    }

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let text = "# comment with a bad \\uzz escape\n! another\n\n  a = 1\nb:2\nc 3\nd=x\\\n   y\n\
                    e\nf\\:g=h\\=i\nj=tab\\there\nk=\\u00fc\\ud83d\\ude00\nl=dir\\\\name\r\nm==\n";
        assert_eq!(
            pairs(text),
            [
                ("a", "1"),
                ("b", "2"),
                ("c", "3"),
                ("d", "xy"),
                ("e", ""),
                ("f:g", "h=i"),
                ("j", "tab\there"),
                ("k", "ü😀"),
                ("l", "dir\\name"),
                ("m", "="),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
    }

    #[test]
    fn a_bad_escape_names_its_line() {
        let problem = parse("a=1\nb=\\u12\n").unwrap_err();
        assert_eq!(
            problem.to_string(),
            "x.properties:2: has \\u12, which is not \\u and four hex digits"
        );
    }

    #[test]
    fn the_last_of_two_values_counts_and_is_warned_about() {
        let mut problems = Vec::new();
        let properties =
            Properties::parse(Path::new("x.properties"), "a=1\na=2\n", &mut problems).unwrap();
        assert_eq!(properties.get("a"), Some("2"));
        assert_eq!(
            problems[0].to_string(),
            "x.properties:2: a=2: was set in line 1 already; this value counts"
        );
        assert!(!problems[0].is_error());
    }

    #[test]
    fn json_is_taken_flat_and_as_name_and_config() {
        let flat = pairs(r#"{"name":"n","tasks.max":2,"x":true,"y":null}"#);
        let expected = [("name", "n"), ("tasks.max", "2"), ("x", "true")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(flat, expected);
        let nested = pairs(r#"{"name":"n","config":{"tasks.max":"2","x":"true"}}"#);
        assert_eq!(nested, expected);
        for wrong in [
            r#"{"name":"n","config":{"name":"m"}}"#,
            r#"{"name":"n","config":{},"other":1}"#,
            r#"{"a":[1]}"#,
            r#"{"a":1"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_keys_have_their_lines() {
        let text = "{\n  \"name\": \"tasks.max\",\n  \"config\": {\n    \"tasks.max\" : 0, \"\\u0061\": 1\n  }\n}";
        let properties = parse(text).unwrap();
        for (key, place) in [
            ("tasks.max", "x.properties:4: tasks.max=0: is wrong"),
            ("name", "x.properties:2: name=tasks.max: is wrong"),
            ("a", "x.properties: a=1: is wrong"),
        ] {
            assert_eq!(properties.problem(key, "is wrong").to_string(), place);
        }
    }

    #[test]
    fn what_begins_like_json_is_no_properties() {
        for (text, says) in [
            (r#"[{"name": "n"}]"#, "must be one JSON object"),
            ("[worker]\nname=n\n", "or lines of key=value"),
            ("{name=n}", "or lines of key=value"),
            (&"[".repeat(1 << 20), "recursion limit"),
            (&r#"{"a":"#.repeat(100_000), "recursion limit"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn debugging_shows_no_values() {
        let text = format!("{:?}", parse("ssl.key.password=abc\n").unwrap());
        assert!(
            text.contains("ssl.key.password") && !text.contains("abc"),
            "{text}"
        );
    }

    #[test]
    fn secrets_are_hidden_in_problems() {
        let properties = parse("sasl.jaas.config=user pass\nssl.key.password=abc\n").unwrap();
        for key in ["sasl.jaas.config", "ssl.key.password"] {
            let text = properties.problem(key, "is wrong").to_string();
            assert!(
                text.contains("[hidden]") && !text.contains("pass\n"),
                "{text}"
            );
            assert!(
                !text.contains("abc") && !text.contains("user pass"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_that_is_not_utf8_is_read_as_latin_1() {
        let dir = std::env::temp_dir().join(format!("sink-latin1-{}", std::process::id()));
        std::fs::write(&dir, b"a=caf\xe9\n").unwrap();
        let properties = Properties::read(&dir, &mut Vec::new()).unwrap();
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(properties.get("a"), Some("café"));
    }
}
