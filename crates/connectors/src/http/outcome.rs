//! What an answer, or the lack of one, means for the records of a request.

use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;
use sharegroup_sink::Outcome;
use sharegroup_wire::text::visible;

use super::config::{AnswerConfig, ItemsConfig};

/// Single statuses and ranges of them, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statuses(Vec<(u16, u16)>);

impl Statuses {
    /// Reads `408,500-599`. A range without an end goes to 599. `Err`: what is wrong, to be read after the key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let items = text.split(',').map(str::trim);
        let items = items.filter(|item| !item.is_empty());
        let ranges = items.map(|item| {
            let (first, last) = match item.split_once('-') {
                Some((first, "")) => (first, "599"),
                Some(ends) => ends,
                None => (item, item),
            };
            let ends = first.trim().parse().ok().zip(last.trim().parse().ok());
            let is_range = |(first, last): &(u16, u16)| 100 <= *first && first <= last;
            ends.filter(is_range)
                .ok_or_else(|| format!("has {item:?}, which is no status and no range of them"))
        });
        ranges.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn has(&self, status: u16) -> bool {
        let mut ranges = self.0.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&status))
    }
}

/// An answer, with as much of its body as is read.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether there was more of it.
    pub(super) is_cut: bool,
    /// What must be shown nowhere if it is in the answer: what the request has authenticated with.
    pub(super) secrets: Vec<String>,
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// It was not sent.
    NotSent(String),
    /// Nobody knows what became of it.
    Unsure(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) | Self::Unsure(why) => f.write_str(why),
        }
    }
}

/// What a status means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Written,
    Later,
    Refused,
}

impl AnswerConfig {
    pub(super) fn verdict(&self, status: u16) -> Verdict {
        if self.written.has(status) {
            Verdict::Written
        } else if !self.later.has(status) && self.refused.has(status) {
            Verdict::Refused
        } else {
            Verdict::Later
        }
    }

    /// What became of each of `records` records of a request.
    pub(super) fn outcomes(
        &self,
        answer: &Result<Answer, NoAnswer>,
        what: &str,
        records: usize,
    ) -> Vec<Outcome> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(NoAnswer::NotSent(why)) => return vec![later(format!("{what}: {why}")); records],
            Err(NoAnswer::Unsure(why)) => return vec![unknown(format!("{what}: {why}")); records],
        };
        let says = || format!("{what} answered {}{}", answer.status, answer.excerpt());
        let outcome = match self.verdict(answer.status.as_u16()) {
            Verdict::Written => Outcome::Written,
            Verdict::Refused => Outcome::Refused { reason: says() },
            Verdict::Later => Outcome::Later {
                reason: says(),
                after: answer.retry_after(SystemTime::now()),
            },
        };
        match &self.items {
            Some(items) if outcome == Outcome::Written && records > 1 => {
                self.of_items(items, answer, what, records)
            }
            _ => vec![outcome; records],
        }
    }

    fn of_items(
        &self,
        config: &ItemsConfig,
        answer: &Answer,
        what: &str,
        records: usize,
    ) -> Vec<Outcome> {
        let unreadable = |why: &str| {
            let why = format!("{what} answered {}, but {why}", answer.status);
            vec![unknown(why); records]
        };
        if answer.is_cut {
            return unreadable("with more than response.max.bytes");
        }
        let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else {
            return unreadable("not in JSON");
        };
        let items = body.pointer(&config.items).and_then(Value::as_array);
        let Some(items) = items else {
            return unreadable("without a list at batch.response.items");
        };
        if items.len() != records {
            let count = items.len();
            return unreadable(&format!("with {count} items for {records} records"));
        }
        let items = items.iter();
        items
            .map(|item| self.of_item(config, answer, item, what))
            .collect()
    }

    fn of_item(&self, config: &ItemsConfig, answer: &Answer, item: &Value, what: &str) -> Outcome {
        let (verdict, status) = match item.pointer(&config.status) {
            Some(Value::Bool(true)) => (Verdict::Written, "true".to_owned()),
            Some(Value::Bool(false)) => (Verdict::Refused, "false".to_owned()),
            Some(Value::Number(number)) => {
                let status = number
                    .as_u64()
                    .and_then(|status| u16::try_from(status).ok());
                (self.verdict(status.unwrap_or_default()), number.to_string())
            }
            _ => {
                let why = format!("{what} answered without batch.response.status for the record");
                return unknown(why);
            }
        };
        let reason = match item.pointer(&config.reason) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => answer.shown(text),
            Some(other) => answer.shown(&other.to_string()),
        };
        let says = format!("{what} answered {status} for the record{reason}");
        match verdict {
            Verdict::Written => Outcome::Written,
            Verdict::Later => later(says),
            Verdict::Refused => Outcome::Refused { reason: says },
        }
    }
}

fn later(reason: String) -> Outcome {
    Outcome::Later {
        reason,
        after: None,
    }
}

fn unknown(reason: String) -> Outcome {
    Outcome::Unknown { reason }
}

impl Answer {
    /// Shortest wait before the next try, where the target has said one (RFC 9110, section 10.2.3): seconds, or
    /// a time.
    fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let value = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let wait = match value.parse() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => {
                let at = httpdate::parse_http_date(value).ok()?;
                at.duration_since(now).unwrap_or_default()
            }
        };
        Some(wait.min(RETRY_AFTER_MAX))
    }

    /// The beginning of the body behind a colon, for messages; empty where there is none.
    pub(super) fn excerpt(&self) -> String {
        self.shown(&String::from_utf8_lossy(&self.body))
    }

    /// A text of the answer behind a colon: in one line, without control characters and secrets, not too long.
    fn shown(&self, text: &str) -> String {
        let mut text = Cow::Borrowed(text.trim());
        if text.is_empty() {
            return String::new();
        }
        for secret in &self.secrets {
            if text.contains(secret) {
                text = Cow::Owned(text.replace(secret, "[hidden]"));
            }
        }
        let start: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
        let more = if start.len() < text.len() { "…" } else { "" };
        format!(": {}{more}", visible(&start))
    }

    /// Whether the target, or what is before it, has too much to do.
    pub(super) const fn is_pressed(&self) -> bool {
        matches!(self.status.as_u16(), 408 | 429 | 503 | 504)
    }
}

/// Longest wait that a target is given: a lock is renewed for as long.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// Of an answer's body, in a message.
const EXCERPT_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AnswerConfig {
        AnswerConfig {
            written: Statuses::parse("200-299").unwrap(),
            later: Statuses::parse("401,403,407,408,425,429,500-599").unwrap(),
            refused: Statuses::parse("400-499").unwrap(),
            items: Some(ItemsConfig {
                items: "/items".to_owned(),
                status: "/status".to_owned(),
                reason: "/error".to_owned(),
            }),
        }
    }

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::from(body.to_owned()),
            is_cut: false,
            secrets: vec!["hush".to_owned()],
        }
    }

    #[test]
    fn the_defaults_tell_refusals_from_what_may_pass() {
        let config = config();
        for (status, verdict) in [
            (200, Verdict::Written),
            (204, Verdict::Written),
            (302, Verdict::Later),
            (400, Verdict::Refused),
            (401, Verdict::Later),
            (403, Verdict::Later),
            (404, Verdict::Refused),
            (407, Verdict::Later),
            (408, Verdict::Later),
            (425, Verdict::Later),
            (429, Verdict::Later),
            (499, Verdict::Refused),
            (500, Verdict::Later),
            (599, Verdict::Later),
            (777, Verdict::Later),
        ] {
            assert_eq!(config.verdict(status), verdict, "{status}");
        }
    }

    #[test]
    fn lists_of_statuses_have_ranges_with_and_without_an_end() {
        let statuses = Statuses::parse("404, 500-").unwrap();
        let has = [403, 404, 499, 500, 599, 600].map(|status| statuses.has(status));
        assert_eq!(has, [false, true, false, true, true, false]);
        for wrong in ["x", "500-400", "99", "-5"] {
            assert!(Statuses::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_target_s_wait_is_seconds_or_a_time_and_has_a_bound() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (value, seconds) in [
            ("2", Some(2)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("999999999", Some(300)),
            ("-1", None),
            ("soon", None),
        ] {
            let mut answer = answer(503, "");
            answer.headers.insert(RETRY_AFTER, value.parse().unwrap());
            let wait = answer.retry_after(now).map(|wait| wait.as_secs());
            assert_eq!(wait, seconds, "{value}");
        }
    }

    #[test]
    fn each_item_of_a_batch_has_an_outcome_of_its_own() {
        let body = r#"{"items": [{"status": 201}, {"status": 422, "error": "no\u001b[2Jname hush"}, {"status": 503}, {"status": true}, {}]}"#;
        let outcomes = config().outcomes(&Ok(answer(200, body)), "POST http://x", 5);
        assert_eq!(outcomes[0], Outcome::Written);
        let Outcome::Refused { reason } = &outcomes[1] else {
            panic!("{outcomes:?}");
        };
        assert!(
            reason.contains("422") && reason.contains("name"),
            "{reason}"
        );
        assert!(!reason.contains('\u{1b}') && reason.ends_with("[hidden]"));
        assert!(matches!(&outcomes[2], Outcome::Later { .. }));
        assert_eq!(outcomes[3], Outcome::Written);
        assert!(matches!(&outcomes[4], Outcome::Unknown { .. }));
    }

    #[test]
    fn an_answer_without_an_item_for_each_record_settles_nothing() {
        for body in ["", "{}", r#"{"items": [{"status": 200}]}"#, "<html>"] {
            let outcomes = config().outcomes(&Ok(answer(200, body)), "POST http://x", 2);
            let unknown = outcomes
                .iter()
                .filter(|o| matches!(o, Outcome::Unknown { .. }));
            assert_eq!(unknown.count(), 2, "{body}");
        }
        // What is refused as a whole has no items.
        let outcomes = config().outcomes(&Ok(answer(400, "{}")), "POST http://x", 2);
        assert!(matches!(
            &outcomes[..],
            [Outcome::Refused { .. }, Outcome::Refused { .. }]
        ));
    }
}
