//! Settings of the sink `http`.

use std::fmt;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use sharegroup_consumer::producer::ProducerConfig;
use sharegroup_sink::ConnectorConfig;
use sharegroup_sink::config::ConfigProblem;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::net::tls::TlsOptions;
use sharegroup_wire::net::{Address, Secret};

use super::keys::{ALIASES, COMMA_HEADERS, TLS_PREFIX};
use super::outcome::Statuses;
use super::request::parse_method;
use super::template::{Escape, Template};

/// Everything that a task does, and how.
#[derive(Clone, Debug)]
pub(super) struct HttpConfig {
    pub(super) request: RequestConfig,
    pub(super) target: TargetConfig,
    pub(super) answer: AnswerConfig,
    pub(super) concurrency_start: u32,
    pub(super) concurrency_max: u32,
    pub(super) response_topic: Option<ResponseTopic>,
    pub(super) response_log: ResponseLog,
}

/// How records become requests.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestConfig {
    pub(super) method: Template,
    pub(super) origin: Origin,
    pub(super) path: Path,
    pub(super) headers: Vec<HeaderTemplate>,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) body: Option<Template>,
    pub(super) escape: Escape,
    pub(super) null_values: NullValues,
    pub(super) idempotency: Option<HeaderName>,
    pub(super) compression: Compression,
    pub(super) batch: BatchConfig,
}

/// Path and query of a URL. Either may hold a token, so that it is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Path(pub(super) Template);

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Path").finish_non_exhaustive()
    }
}

/// A header with places for parts of a record.
#[derive(Clone)]
pub(super) struct HeaderTemplate {
    pub(super) name: HeaderName,
    pub(super) value: Template,
    pub(super) is_secret: bool,
}

impl fmt::Debug for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_tuple("HeaderTemplate");
        shown.field(&self.name);
        if !self.is_secret {
            shown.field(&self.value);
        }
        shown.finish_non_exhaustive()
    }
}

/// Scheme, host and port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) is_https: bool,
    /// Host and port as the URL has them.
    pub(super) authority: String,
}

impl Origin {
    /// Of an absolute URL without user.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let is_https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?.as_str();
        let is_usable = !authority.contains('@') && !authority.starts_with(':');
        is_usable.then(|| Self {
            is_https,
            authority: authority.to_ascii_lowercase(),
        })
    }

    /// The server, with its port.
    pub(super) fn address(uri: &Uri) -> Option<Address> {
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
        let default = match uri.scheme_str()? {
            "https" => 443,
            _ => 80,
        };
        Some(Address::new(host, uri.port_u16().unwrap_or(default)))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

/// `behavior.on.null.values`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NullValues {
    #[default]
    Send,
    Delete,
    Ignore,
    Fail,
}

/// Which records share a request.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchConfig {
    pub(super) records_max: usize,
    pub(super) bytes_max: usize,
    pub(super) format: BatchFormat,
    pub(super) prefix: String,
    pub(super) separator: String,
    pub(super) suffix: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BatchFormat {
    #[default]
    Json,
    Lines,
}

/// How requests get to the target.
#[derive(Clone, Debug)]
pub(super) struct TargetConfig {
    pub(super) version: Version,
    pub(super) tls: TlsOptions,
    pub(super) proxy: Option<ProxyConfig>,
    pub(super) auth: AuthConfig,
    pub(super) connect_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) redirects_max: u32,
    pub(super) response_bytes_max: usize,
}

/// `http.version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Auto,
    Http1,
    Http2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProxyConfig {
    pub(super) address: Address,
    pub(super) credentials: Option<(String, Secret)>,
}

/// `auth.type` and what belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum AuthConfig {
    #[default]
    None,
    Basic {
        user: String,
        password: Secret,
    },
    Bearer(Secret),
    /// The whole value of the header.
    Static(Secret),
    OAuth2(TokenConfig),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenConfig {
    pub(super) url: String,
    pub(super) client_id: String,
    pub(super) client_secret: Secret,
    pub(super) scope: Option<String>,
    /// Field of the answer with the token.
    pub(super) property: String,
    /// Whether id and secret go in a header.
    pub(super) in_header: bool,
}

/// What answers mean.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerConfig {
    pub(super) written: Statuses,
    pub(super) later: Statuses,
    pub(super) refused: Statuses,
    pub(super) items: Option<ItemsConfig>,
}

/// Where an answer to a batch has what became of each record, as JSON pointers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ItemsConfig {
    pub(super) items: String,
    pub(super) status: String,
    pub(super) reason: String,
}

#[derive(Clone, Debug)]
pub(super) struct ResponseTopic {
    pub(super) topic: String,
    pub(super) producer: ProducerConfig,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ResponseLog {
    #[default]
    None,
    Failed,
    All,
}

impl HttpConfig {
    /// Reads the settings.
    ///
    /// # Errors
    /// Everything that is wrong. `Ok` has what is merely odd beside it.
    pub(super) fn read(
        config: &ConnectorConfig,
    ) -> Result<(Self, Vec<ConfigProblem>), Vec<ConfigProblem>> {
        let mut keys = Keys {
            config,
            problems: Vec::new(),
        };
        keys.check_aliases();
        let (url, user_info) = keys.url();
        let request = keys.request(url);
        let answer = keys.answer(request.batch.records_max);
        let target = keys.target(user_info, &request.origin);
        keys.check_timeouts(&target);
        let (start, max) = (
            keys.number("http.concurrency.start"),
            keys.number("http.concurrency.max"),
        );
        let topic = keys.text("response.topic").map(|topic| ResponseTopic {
            topic: topic.to_owned(),
            producer: config.producer.clone(),
        });
        keys.check_topic(topic.as_ref());
        let read = Self {
            request,
            target,
            answer,
            concurrency_start: u32::min(start, max),
            concurrency_max: max,
            response_topic: topic,
            response_log: match keys.word("response.log").as_str() {
                "all" => ResponseLog::All,
                "failed" => ResponseLog::Failed,
                _ => ResponseLog::None,
            },
        };
        if keys.problems.iter().any(ConfigProblem::is_error) {
            return Err(keys.problems);
        }
        Ok((read, keys.problems))
    }
}

/// A connector's settings, and what is wrong with them.
struct Keys<'a> {
    config: &'a ConnectorConfig,
    problems: Vec<ConfigProblem>,
}

impl<'a> Keys<'a> {
    /// The name under which a key is set, if it is.
    fn set_as(&self, key: &'static str) -> Option<&'static str> {
        let aliases = ALIASES.iter().filter(|(name, _)| *name == key);
        let mut names = std::iter::once(key).chain(aliases.map(|(_, alias)| *alias));
        names.find(|name| self.config.get(name).is_some_and(|value| !value.is_empty()))
    }

    /// A key's value: from the file, under whatever name, or its default. `None` where that is empty.
    fn text(&self, key: &'static str) -> Option<&'a str> {
        let name = self.set_as(key).unwrap_or(key);
        self.config.own(name).filter(|value| !value.is_empty())
    }

    fn word(&self, key: &'static str) -> String {
        self.text(key).unwrap_or_default().to_ascii_lowercase()
    }

    fn number<T: std::str::FromStr + Default>(&self, key: &'static str) -> T {
        let value = self.text(key).and_then(|value| value.parse().ok());
        value.unwrap_or_default()
    }

    fn duration(&self, key: &'static str) -> Duration {
        Duration::from_millis(self.number(key))
    }

    fn wrong(&mut self, key: &'static str, message: impl Into<String>) {
        let name = self.set_as(key).unwrap_or(key);
        self.problem(name, message);
    }

    fn problem(&mut self, name: &str, message: impl Into<String>) {
        let problem = self.config.problem(name, message);
        // Path and query of a URL may be secret.
        let problem = match name.ends_with("url") {
            true => problem.without_value(),
            false => problem,
        };
        self.problems.push(problem);
    }

    /// What can't be read is a problem, and nothing.
    fn read<T: Default>(&mut self, key: &'static str, read: Result<T, String>) -> T {
        read.unwrap_or_else(|message| {
            self.wrong(key, message);
            T::default()
        })
    }

    fn check_aliases(&mut self) {
        for (name, alias) in ALIASES {
            let is_set = |key| self.config.get(key).is_some();
            let others = ALIASES.iter().filter(|(other, _)| other == name);
            let others = others.map(|(_, alias)| *alias);
            let mut others = std::iter::once(*name).chain(others);
            let first = others.find(|key| *key == *alias || is_set(key));
            if is_set(alias)
                && let Some(first) = first.filter(|first| first != alias)
            {
                let message = format!("is another name of {first}, which is set too");
                self.problem(alias, message);
            }
        }
    }

    /// Server and template of the rest; user and password, where the URL has them.
    fn url(&mut self) -> ((Origin, Template), Option<(String, Secret)>) {
        let Some(url) = self.text("http.url") else {
            let message = "must be set: where requests go";
            self.problem("http.url", message);
            return Default::default();
        };
        let read = parse_url(url);
        let (origin, path, user_info) = self.read("http.url", read);
        ((origin, path), user_info)
    }

    fn request(&mut self, (origin, path): (Origin, Template)) -> RequestConfig {
        let method = self.template("http.method").unwrap_or_default();
        if let Some(literal) = method.literal()
            && parse_method(literal.to_ascii_uppercase().as_bytes()).is_none()
        {
            self.wrong("http.method", "is not a method of HTTP for records");
        }
        let content_type = self.text("http.headers.content.type").map(|value| {
            HeaderValue::from_str(value).map_err(|_| "is not a value of a header".to_owned())
        });
        let content_type =
            content_type.and_then(|read| self.read("http.headers.content.type", read.map(Some)));
        let idempotency = self.text("http.idempotency.header").map(|name| {
            HeaderName::try_from(name).map_err(|_| "is not a header's name".to_owned())
        });
        let idempotency =
            idempotency.and_then(|read| self.read("http.idempotency.header", read.map(Some)));
        RequestConfig {
            method,
            origin,
            path: Path(path),
            headers: self.headers(),
            content_type,
            body: self.template("http.body"),
            escape: match self.word("http.body.escape").as_str() {
                "form" => Escape::Url,
                "none" => Escape::None,
                _ => Escape::Json,
            },
            null_values: match self.word("behavior.on.null.values").as_str() {
                "delete" => NullValues::Delete,
                "ignore" => NullValues::Ignore,
                "fail" => NullValues::Fail,
                _ => NullValues::Send,
            },
            idempotency,
            compression: self
                .word("http.compression.type")
                .parse()
                .unwrap_or_default(),
            batch: self.batch(),
        }
    }

    fn template(&mut self, key: &'static str) -> Option<Template> {
        let text = self.text(key)?;
        Some(self.read(key, Template::parse(text)))
    }

    fn headers(&mut self) -> Vec<HeaderTemplate> {
        let separator = self.text("http.headers.separator").unwrap_or("|");
        let mut headers = Vec::new();
        for (key, is_secret) in [("http.headers", false), ("http.headers.secret", true)] {
            let separator = match self.set_as(key) {
                Some(COMMA_HEADERS) => ",",
                _ => separator,
            };
            let lines = self.text(key).unwrap_or_default().split(separator);
            for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
                match parse_header(line) {
                    Ok((name, value)) => {
                        let is_known_secret = is_credential(&name);
                        if is_known_secret && !is_secret && value.literal().is_some() {
                            let message = format!("shows the value of {name}");
                            let problem = self.config.problem(key, message).without_value();
                            let advice = "put it into http.headers.secret";
                            self.problems.push(problem.advice(advice).warning());
                        }
                        headers.push(HeaderTemplate {
                            name,
                            value,
                            is_secret: is_secret || is_known_secret,
                        });
                    }
                    Err(message) => {
                        let name = self.set_as(key).unwrap_or(key);
                        let problem = self.config.problem(name, message);
                        self.problems.push(problem.without_value());
                    }
                }
            }
        }
        headers
    }

    fn batch(&mut self) -> BatchConfig {
        let format = match self.word("batch.format").as_str() {
            "lines" => BatchFormat::Lines,
            _ => BatchFormat::Json,
        };
        let [prefix, separator, suffix] = match format {
            BatchFormat::Json => ["[", ",", "]"],
            BatchFormat::Lines => ["", "\n", "\n"],
        };
        let or = |key: &'static str, default: &str| match self.config.get(key) {
            Some(text) => unescaped(text),
            None => default.to_owned(),
        };
        BatchConfig {
            records_max: self.number("batch.max.size"),
            bytes_max: self.number("batch.max.bytes"),
            format,
            prefix: or("batch.prefix", prefix),
            separator: or("batch.separator", separator),
            suffix: or("batch.suffix", suffix),
        }
    }

    fn answer(&mut self, records_max: usize) -> AnswerConfig {
        let mut statuses = |key| {
            let read = Statuses::parse(self.text(key).unwrap_or_default());
            self.read(key, read)
        };
        let (written, later, refused) = (
            statuses("http.status.written"),
            statuses("http.status.later"),
            statuses("http.status.refused"),
        );
        let items = self.text("batch.response.items");
        if items.is_some() && records_max < 2 {
            let message = "has no effect: requests have one record (batch.max.size)";
            let problem = self.config.problem("batch.response.items", message);
            self.problems.push(problem.warning());
        }
        let config = self.config;
        let own = |key| config.own(key).unwrap_or_default();
        let items = items.map(|items| {
            let mut pointer = |key: &'static str, text: &str| match text {
                "/" | "" => String::new(),
                text if text.starts_with('/') => text.to_owned(),
                _ => {
                    self.wrong(key, "is not a JSON pointer: it must begin with /");
                    String::new()
                }
            };
            ItemsConfig {
                items: pointer("batch.response.items", items),
                status: pointer("batch.response.status", own("batch.response.status")),
                reason: pointer("batch.response.reason", own("batch.response.reason")),
            }
        });
        AnswerConfig {
            written,
            later,
            refused,
            items,
        }
    }

    fn target(&mut self, user_info: Option<(String, Secret)>, origin: &Origin) -> TargetConfig {
        TargetConfig {
            version: match self.word("http.version").as_str() {
                "1.1" => Version::Http1,
                "2" => Version::Http2,
                _ => Version::Auto,
            },
            tls: self.tls(origin.is_https),
            proxy: self.proxy(),
            auth: self.auth(user_info),
            connect_timeout: self.duration("http.connect.timeout.ms"),
            request_timeout: self.duration("http.request.timeout.ms"),
            redirects_max: self.number("http.redirects.max"),
            response_bytes_max: self.number("response.max.bytes"),
        }
    }

    fn tls(&mut self, is_used: bool) -> TlsOptions {
        let mut options = TlsOptions::default();
        for key in TlsOptions::KEYS {
            let name = format!("{TLS_PREFIX}{key}");
            if let Some(value) = self.config.get(&name)
                && let Err(error) = options.set(key, value)
            {
                self.problems
                    .push(self.config.problem(&name, error.problem));
            }
        }
        if is_used && let Err(error) = options.check() {
            let key = "https.ssl.truststore.location";
            let problem = self.config.problem(key, error.to_string());
            self.problems.push(problem.without_value());
        }
        options
    }

    fn proxy(&mut self) -> Option<ProxyConfig> {
        let host = self.text("http.proxy.host")?;
        let is_host = !host.contains(['/', '@', ' ']);
        if !is_host {
            let message = "must be a host alone: http.proxy.port, http.proxy.user and http.proxy.password have the rest";
            self.wrong("http.proxy.host", message);
        }
        let user = self.text("http.proxy.user").map(|user| {
            let password = self.text("http.proxy.password").unwrap_or_default();
            (user.to_owned(), Secret::from(password))
        });
        Some(ProxyConfig {
            address: Address::new(host, self.number("http.proxy.port")),
            credentials: user,
        })
    }

    fn auth(&mut self, user_info: Option<(String, Secret)>) -> AuthConfig {
        let kind = self.word("auth.type");
        if kind != "none" && user_info.is_some() {
            self.wrong("auth.type", "contradicts the user and password in http.url");
        }
        match kind.as_str() {
            "basic" => AuthConfig::Basic {
                user: self.needed("connection.user", "auth.type=basic"),
                password: Secret::from(self.text("connection.password").unwrap_or_default()),
            },
            "bearer" => AuthConfig::Bearer(self.needed("bearer.token", "auth.type=bearer").into()),
            "static" => {
                let value = self.needed("http.headers.authorization", "auth.type=static");
                AuthConfig::Static(value.into())
            }
            "oauth2" => AuthConfig::OAuth2(self.token()),
            _ => user_info.map_or(AuthConfig::None, |(user, password)| AuthConfig::Basic {
                user,
                password,
            }),
        }
    }

    fn needed(&mut self, key: &'static str, by: &str) -> String {
        let text = self.text(key).map(str::to_owned);
        text.unwrap_or_else(|| {
            self.wrong(key, format!("must be set with {by}"));
            String::new()
        })
    }

    fn token(&mut self) -> TokenConfig {
        let by = "auth.type=oauth2";
        let url = self.needed("oauth2.token.url", by);
        let parsed: Option<Uri> = url.parse().ok();
        if !url.is_empty() && parsed.as_ref().and_then(Origin::of).is_none() {
            let message = "must be a URL with http: or https:, a host and no user";
            self.wrong("oauth2.token.url", message);
        }
        TokenConfig {
            url,
            client_id: self.needed("oauth2.client.id", by),
            client_secret: self.needed("oauth2.client.secret", by).into(),
            scope: self.text("oauth2.client.scope").map(str::to_owned),
            property: self
                .text("oauth2.token.property")
                .unwrap_or_default()
                .to_owned(),
            in_header: self.word("oauth2.client.auth.mode") != "url",
        }
    }

    /// A put that says nothing for that long fails its task.
    fn check_timeouts(&mut self, target: &TargetConfig) {
        let stall = self.config.delivery.put_stall;
        if target.request_timeout >= stall {
            let message = format!(
                "must be less than share.put.stall.ms ({})",
                stall.as_millis()
            );
            self.wrong("http.request.timeout.ms", message);
        }
    }

    fn check_topic(&mut self, topic: Option<&ResponseTopic>) {
        let Some(topic) = topic.map(|topic| &topic.topic) else {
            return;
        };
        if !sharegroup_consumer::is_topic_name(topic) {
            self.wrong("response.topic", "is not a topic's name");
        }
        if self.config.topics.contains(topic) {
            let message = "is among the topics of the connector: answers would come back for ever";
            self.wrong("response.topic", message);
        }
    }
}

type Parsed = (Origin, Template, Option<(String, Secret)>);

fn parse_url(url: &str) -> Result<Parsed, String> {
    let (scheme, rest) = url
        .split_once("://")
        .ok_or("must begin with http:// or https://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains("${") || scheme.contains("${") {
        return Err("must not take its host from a record".to_owned());
    }
    if path.contains('#') {
        return Err("must not have a fragment (#)".to_owned());
    }
    let (user_info, host) = match authority.rsplit_once('@') {
        Some((user_info, host)) => (Some(user_info), host),
        None => (None, authority),
    };
    let base: Result<Uri, _> = format!("{}://{host}/", scheme.to_ascii_lowercase()).parse();
    let origin = base.ok().as_ref().and_then(Origin::of);
    let origin = origin.ok_or("must begin with http:// or https:// and a host")?;
    let path = match path.strip_prefix('/') {
        Some(_) => path.to_owned(),
        None => format!("/{path}"),
    };
    let template = Template::parse(&path)?;
    let sample: Result<Uri, _> = format!("{origin}{}", template.sample()).parse();
    sample.map_err(|error| format!("is not a URL: {error}"))?;
    let user_info = user_info.map(|text| {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        (percent_decode(user), percent_decode(password).into())
    });
    Ok((origin, template, user_info))
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *first == b'%');
        let decoded = digits.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        bytes.push(decoded.unwrap_or(*first));
        rest = behind.get(decoded.map_or(0, |_| 2)..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn parse_header(line: &str) -> Result<(HeaderName, Template), String> {
    let (name, value) = line
        .split_once(':')
        .ok_or("has a header without a colon: Name: value is its form")?;
    let name = HeaderName::try_from(name.trim()).map_err(|_| "has a wrong header name")?;
    if IS_OURS.contains(&name.as_str()) {
        return Err(format!("must not set {name}: that is set here"));
    }
    let template = Template::parse(value.trim())?;
    if HeaderValue::from_str(&template.sample()).is_err() {
        return Err(format!("has a wrong value of {name}"));
    }
    Ok((name, template))
}

/// Whether a header is one that authenticates by its name.
pub(super) fn is_credential(name: &HeaderName) -> bool {
    let name = name.as_str();
    ["auth", "cookie", "token", "secret", "api-key", "apikey"]
        .iter()
        .any(|part| name.contains(part))
}

/// With `\n`, `\r` and `\t` for the characters that a file of properties can't end with.
fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n")
        .replace("\\r", "\r")
        .replace("\\t", "\t")
}

/// Headers that the transport sets.
const IS_OURS: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "content-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "upgrade",
    "te",
    "expect",
];
