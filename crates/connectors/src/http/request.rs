//! Records become requests: one each, or several that go to the same place together.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use serde::de::IgnoredAny;
use sharegroup_sink::data::Value;
use sharegroup_sink::{OutcomeSender, SinkBatch, SinkRecord};
use sharegroup_wire::compress::{Compression, compress};

use super::config::{BatchFormat, NullValues, RequestConfig};
use super::template::{Escape, Source, Template};
use crate::json;

/// A request, with the records that are in it.
#[derive(Clone, Debug)]
pub(super) struct Call {
    head: Head,
    pub(super) items: Vec<Item>,
    body: Body,
}

/// Where a request goes, and with what. Records share a request if this is the same.
#[derive(Clone, PartialEq)]
struct Head {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

/// Leaves out path and query, which may be secret.
impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", &self.method)
            .field("authority", &self.uri.authority())
            .finish_non_exhaustive()
    }
}

/// A record in a request.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) offset: i64,
    pub(super) key: Option<Bytes>,
    bytes: Bytes,
}

/// Leaves out key and value.
impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

/// How the body is made of items.
#[derive(Clone, Debug)]
struct Body {
    compression: Compression,
    /// Before, between and behind them; a record by itself has none of this.
    around: Option<[String; 3]>,
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Bytes,
    Text,
    Json,
    Lines,
    Form,
}

impl Content {
    /// What a template makes.
    const fn of_template(escape: Escape) -> Self {
        match escape {
            Escape::Json => Self::Json,
            Escape::Url => Self::Form,
            Escape::None => Self::Text,
        }
    }

    const fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Bytes => "application/octet-stream",
            Self::Text => "text/plain; charset=utf-8",
            Self::Json => "application/json",
            Self::Lines => "application/x-ndjson",
            Self::Form => "application/x-www-form-urlencoded",
        })
    }
}

impl Call {
    /// `POST https://host`, for messages: what follows may be secret.
    pub(super) fn describe(&self) -> String {
        let Head { method, uri, .. } = &self.head;
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        format!("{method} {scheme}://{authority}")
    }

    /// The request to be sent. `Err`: it can't be.
    pub(super) fn request(&self) -> Result<Request<Bytes>, String> {
        let mut body = self.body();
        let mut headers = self.head.headers.clone();
        if self.body.compression != Compression::None && !body.is_empty() {
            let compressed = compress(self.body.compression, &body);
            body = Bytes::from(compressed.map_err(|error| error.to_string())?);
            let encoding = HeaderValue::from_static(self.body.compression.name());
            headers.insert(CONTENT_ENCODING, encoding);
        }
        let mut request = Request::new(body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = self.head.uri.clone();
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn body(&self) -> Bytes {
        let Some([prefix, separator, suffix]) = &self.body.around else {
            let item = self.items.first();
            return item.map(|item| item.bytes.clone()).unwrap_or_default();
        };
        let mut body = prefix.clone().into_bytes();
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                body.extend_from_slice(separator.as_bytes());
            }
            body.extend_from_slice(&item.bytes);
        }
        body.extend_from_slice(suffix.as_bytes());
        body.into()
    }

    /// The same in two requests; `None` for a single record.
    pub(super) fn halves(self, names: &Names<'_>) -> Option<[Self; 2]> {
        if self.items.len() < 2 {
            return None;
        }
        let mut first = self;
        let second = first.items.split_off(first.items.len() / 2);
        let mut second = Self {
            items: second,
            ..first.clone()
        };
        for half in [&mut first, &mut second] {
            names.put_on(half);
        }
        Some([first, second])
    }

    fn bytes_len(&self) -> usize {
        self.items.iter().map(|item| item.bytes.len() + 1).sum()
    }
}

/// What names requests by their records.
#[derive(Debug)]
pub(super) struct Names<'a> {
    config: &'a RequestConfig,
    topic: &'a str,
    partition: i32,
}

impl<'a> Names<'a> {
    pub(super) fn new(config: &'a RequestConfig, batch: &'a SinkBatch) -> Self {
        Self {
            config,
            topic: batch.topic(),
            partition: batch.partition(),
        }
    }

    /// Sets the header that has the same value at each try.
    fn put_on(&self, call: &mut Call) {
        let Some(header) = &self.config.idempotency else {
            return;
        };
        let (Some(first), Some(last)) = (call.items.first(), call.items.last()) else {
            return;
        };
        let (topic, partition) = (self.topic, self.partition);
        let mut name = format!("{topic}-{partition}-{}", first.offset);
        if call.items.len() > 1 {
            let offsets = call.items.iter().map(|item| item.offset);
            // Which records lie between the first and the last.
            let digest = offsets.fold(FNV_OFFSET, |digest, offset| {
                let bytes = offset.to_be_bytes();
                bytes.iter().fold(digest, |digest, byte| {
                    (digest ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
                })
            });
            name = format!("{name}-{}-{digest:016x}", last.offset);
        }
        // A topic's name has nothing in it that a header may not have.
        if let Ok(value) = HeaderValue::try_from(name) {
            call.head.headers.insert(header.clone(), value);
        }
    }
}

/// FNV-1a, 64 bits: the same on every machine and in every version.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// The requests of a batch, made one after the other.
pub(super) struct Calls<'a, I> {
    config: &'a RequestConfig,
    names: Names<'a>,
    records: I,
    outcomes: &'a OutcomeSender,
    /// Requests that have room for more records.
    open: Vec<Call>,
    ready: VecDeque<Call>,
}

impl<'a, I: Iterator<Item = SinkRecord<'a>>> Calls<'a, I> {
    pub(super) fn new(
        config: &'a RequestConfig,
        names: Names<'a>,
        records: I,
        outcomes: &'a OutcomeSender,
    ) -> Self {
        Self {
            config,
            names,
            records,
            outcomes,
            open: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// Sends a request again, in halves. The answer: whether it has any.
    pub(super) fn again_in_halves(&mut self, call: Call) -> bool {
        let halves = call.halves(&self.names);
        let has_halves = halves.is_some();
        self.ready.extend(halves.into_iter().flatten());
        has_halves
    }

    fn add(&mut self, record: SinkRecord<'a>) {
        let offset = record.offset;
        match self.call(record) {
            Ok(None) => self.outcomes.written(offset),
            Ok(Some(call)) => self.join(call),
            Err(reason) => self.outcomes.refused(offset, reason),
        }
    }

    /// Adds a request of one record to an open one that goes to the same place.
    fn join(&mut self, mut call: Call) {
        let batch = &self.config.batch;
        if call.body.around.is_none() {
            return self.close(call);
        }
        if let Some(at) = self.open.iter().position(|open| open.head == call.head) {
            let mut open = self.open.remove(at);
            if open.bytes_len() + call.bytes_len() > batch.bytes_max {
                self.close(open);
            } else {
                open.items.append(&mut call.items);
                call = open;
            }
        }
        if call.items.len() >= batch.records_max {
            return self.close(call);
        }
        if self.open.len() >= OPEN_MAX {
            let oldest = self.open.remove(0);
            self.close(oldest);
        }
        self.open.push(call);
    }

    fn close(&mut self, mut call: Call) {
        self.names.put_on(&mut call);
        self.ready.push_back(call);
    }

    /// The request of a record by itself; `None` where nothing is to be sent. `Err`: why there can't be one.
    fn call(&self, record: SinkRecord<'a>) -> Result<Option<Call>, String> {
        let config = self.config;
        let source = Source::new(record);
        let mut method = self.method(&source)?;
        let is_null = record.value.is_none();
        match config.null_values {
            NullValues::Ignore if is_null => return Ok(None),
            NullValues::Fail if is_null => {
                return Err("it has no value (behavior.on.null.values=fail)".to_owned());
            }
            NullValues::Delete if is_null => method = Method::DELETE,
            _ => {}
        }
        let is_batch = config.batch.records_max > 1 && method != Method::DELETE;
        let (bytes, content) = match &config.body {
            _ if is_null && is_batch && config.batch.format == BatchFormat::Json => {
                (Bytes::from_static(b"null"), None)
            }
            _ if is_null => (Bytes::new(), None),
            Some(template) => {
                let body = template.render(&source, config.escape);
                let body = body.map_err(|missing| missing.to_string())?;
                (Bytes::from(body), Some(Content::of_template(config.escape)))
            }
            None => value(&source),
        };
        let content = if is_batch {
            check_item(&bytes, config.batch.format, &config.batch.separator)?;
            Some(match config.batch.format {
                BatchFormat::Json => Content::Json,
                BatchFormat::Lines => Content::Lines,
            })
        } else {
            content
        };
        let around = &config.batch;
        let around = [&around.prefix, &around.separator, &around.suffix];
        Ok(Some(Call {
            head: Head {
                method,
                uri: self.uri(&source)?,
                headers: self.headers(&source, content)?,
            },
            items: vec![Item {
                offset: record.offset,
                key: record.key_bytes(),
                bytes,
            }],
            body: Body {
                compression: config.compression,
                around: is_batch.then(|| around.map(Clone::clone)),
            },
        }))
    }

    fn method(&self, source: &Source<'_>) -> Result<Method, String> {
        let method = rendered(&self.config.method, source, Escape::None)?;
        let method = method.trim_ascii().to_ascii_uppercase();
        parse_method(&method).ok_or_else(|| "its method isn't one of HTTP's for records".to_owned())
    }

    fn uri(&self, source: &Source<'_>) -> Result<Uri, String> {
        let rest = rendered(&self.config.path.0, source, Escape::Url)?;
        let rest = String::from_utf8_lossy(&rest);
        let path = rest.split('?').next().unwrap_or_default();
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err("its URL would leave the path of http.url".to_owned());
        }
        let uri = format!("{}{rest}", self.config.origin);
        uri.parse().map_err(|error| format!("its URL: {error}"))
    }

    fn headers(&self, source: &Source<'_>, content: Option<Content>) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        for header in &self.config.headers {
            let value = rendered(&header.value, source, Escape::None)?;
            let value = HeaderValue::try_from(value);
            let mut value = value
                .map_err(|_| format!("its value for the header {} can't be in one", header.name))?;
            value.set_sensitive(header.is_secret);
            headers.append(header.name.clone(), value);
        }
        let own = self.config.content_type.clone();
        if let Some(media_type) = own.or_else(|| content.map(Content::media_type))
            && !headers.contains_key(CONTENT_TYPE)
        {
            headers.insert(CONTENT_TYPE, media_type);
        }
        Ok(headers)
    }
}

impl<'a, I: Iterator<Item = SinkRecord<'a>>> Iterator for Calls<'a, I> {
    type Item = Call;

    /// The next request. Records that can't be in one are refused on the way.
    fn next(&mut self) -> Option<Call> {
        loop {
            if let Some(call) = self.ready.pop_front() {
                return Some(call);
            }
            match self.records.next() {
                Some(record) => self.add(record),
                None => {
                    let call = (!self.open.is_empty()).then(|| self.open.remove(0))?;
                    self.close(call);
                }
            }
        }
    }
}

/// A method; not CONNECT, which makes a tunnel of a connection.
pub(super) fn parse_method(text: &[u8]) -> Option<Method> {
    let method = Method::from_bytes(text).ok()?;
    (method != Method::CONNECT).then_some(method)
}

fn rendered(template: &Template, source: &Source<'_>, escape: Escape) -> Result<Vec<u8>, String> {
    let text = template.render(source, escape);
    text.map_err(|missing| missing.to_string())
}

/// A value as its converter gives it: strings and bytes as they are, without a copy where there need be none, else
/// JSON.
fn value(source: &Source<'_>) -> (Bytes, Option<Content>) {
    let record = &source.record;
    let raw = || record.value_bytes().unwrap_or_default();
    if record.is_raw() {
        return (raw(), Some(Content::Bytes));
    }
    if record.value_text().is_some() {
        return (raw(), Some(Content::Text));
    }
    match &source.data().value.value {
        Value::String(text) => (Bytes::copy_from_slice(text.as_bytes()), Some(Content::Text)),
        Value::Bytes(bytes) => (bytes.clone(), Some(Content::Bytes)),
        other => {
            let mut body = Vec::new();
            json::value(other, &mut body);
            (body.into(), Some(Content::Json))
        }
    }
}

/// One record must not break the others' request.
fn check_item(bytes: &Bytes, format: BatchFormat, separator: &str) -> Result<(), String> {
    match format {
        BatchFormat::Json => serde_json::from_slice::<IgnoredAny>(bytes)
            .map(drop)
            .map_err(|error| format!("it is no JSON, as batch.format=json needs it: {error}")),
        BatchFormat::Lines if separator == "\n" && bytes.contains(&b'\n') => {
            Err("it is more than one line, as batch.format=lines needs it".to_owned())
        }
        BatchFormat::Lines => Ok(()),
    }
}

const AGENT: &str = concat!("sharegroup/", env!("CARGO_PKG_VERSION"));
/// Requests that wait for more records at the same time.
const OPEN_MAX: usize = 64;
