//! The keys of the sink `http`, and the names that other HTTP sinks have for them.

use sharegroup_sink::config::{Importance, KeyDef, ValueKind};

const URL: KeyDef = KeyDef::unset(
    "http.url",
    ValueKind::NonBlank,
    "where requests go: http: or https:, a host, and what follows with ${topic}, ${key}, ${value.FIELD}, ${header.NAME} and so on from the record, percent-encoded; must be set (also http.api.url)",
)
.importance(Importance::High);
const METHOD: KeyDef = KeyDef::optional(
    "http.method",
    ValueKind::NonBlank,
    "POST",
    "method of the requests; may have places as http.url has (also request.method)",
);
const HEADERS: KeyDef = KeyDef::unset(
    "http.headers",
    ValueKind::Text,
    "headers as Name: value, separated by |; values may have places as http.url has (also headers, http.headers.additional)",
);
const HEADERS_SECRET: KeyDef = KeyDef::unset(
    "http.headers.secret",
    ValueKind::Password,
    "headers whose values are never shown, in the form of http.headers",
);
const HEADERS_SEPARATOR: KeyDef = KeyDef::optional(
    "http.headers.separator",
    ValueKind::NonBlank,
    "|",
    "what stands between two headers (also header.separator)",
)
.importance(Importance::Low);
const CONTENT_TYPE: KeyDef = KeyDef::unset(
    "http.headers.content.type",
    ValueKind::Text,
    "Content-Type; left out, by what is sent: application/octet-stream, text/plain or application/json, and application/x-ndjson for lines",
);
const BODY: KeyDef = KeyDef::unset(
    "http.body",
    ValueKind::Text,
    "body for a record, with places as http.url has; left out, the value as its converter gives it: strings and bytes as they are, else JSON",
);
const BODY_ESCAPE: KeyDef = KeyDef::optional(
    "http.body.escape",
    ValueKind::OneOf(&["json", "form", "none"]),
    "json",
    "how what is put into http.body is written: json puts a JSON value, or inside quotation marks the inside of a string; form percent-encodes; none writes it as it is",
);
const NULL_VALUES: KeyDef = KeyDef::optional(
    "behavior.on.null.values",
    ValueKind::OneOf(&["send", "delete", "ignore", "fail"]),
    "send",
    "what becomes of a record without a value: send, with an empty body; delete, as a DELETE; ignore, nothing is sent; fail, it is refused",
);
const VERSION: KeyDef = KeyDef::optional(
    "http.version",
    ValueKind::OneOf(&["auto", "1.1", "2"]),
    "auto",
    "version of HTTP: auto is what TLS agrees on, and 1.1 without TLS; 2 needs no agreement",
);
const COMPRESSION: KeyDef = KeyDef::optional(
    "http.compression.type",
    ValueKind::OneOf(&["none", "gzip", "zstd"]),
    "none",
    "how bodies are compressed (Content-Encoding)",
);
const IDEMPOTENCY: KeyDef = KeyDef::optional(
    "http.idempotency.header",
    ValueKind::Text,
    "Idempotency-Key",
    "header that names the record as topic-partition-offset, the same at each try; empty for none",
);
const REDIRECTS: KeyDef = KeyDef::optional(
    "http.redirects.max",
    ValueKind::Int { min: 0, max: 10 },
    "3",
    "how many redirects that keep method and body (307, 308) are followed; never one from https to http, nor one to another server with credentials",
)
.importance(Importance::Low);

const CONNECT_TIMEOUT: KeyDef = KeyDef::optional(
    "http.connect.timeout.ms",
    ValueKind::at_least(1),
    "10000",
    "longest time for opening a connection, proxy and TLS included",
);
const REQUEST_TIMEOUT: KeyDef = KeyDef::optional(
    "http.request.timeout.ms",
    ValueKind::at_least(1),
    "20000",
    "longest time for a request, its connection and its answer included; should be less than the group's share.record.lock.duration.ms",
)
.importance(Importance::High);
const CONCURRENCY_START: KeyDef = KeyDef::optional(
    "http.concurrency.start",
    ValueKind::Int {
        min: 1,
        max: 10_000,
    },
    "16",
    "how many requests of a task are on their way at the same time to begin with",
);
const CONCURRENCY_MAX: KeyDef = KeyDef::optional(
    "http.concurrency.max",
    ValueKind::Int {
        min: 1,
        max: 10_000,
    },
    "256",
    "how many at most: the number follows the target's latency and refusals; 1 for one after the other",
)
.importance(Importance::High);

const WRITTEN: KeyDef = KeyDef::optional(
    "http.status.written",
    ValueKind::List,
    "200-299",
    "statuses that mean written, single ones and ranges",
);
const LATER: KeyDef = KeyDef::optional(
    "http.status.later",
    ValueKind::List,
    "401,403,407,408,425,429,500-599",
    "statuses that mean try again later, those of wrong credentials among them, which no record is to blame for; what is in no list means that too (also retry.on.status.codes)",
);
const REFUSED: KeyDef = KeyDef::optional(
    "http.status.refused",
    ValueKind::List,
    "400-499",
    "statuses that mean that the record will never be taken; the lists are looked at in the order written, later, refused",
);

const BATCH_SIZE: KeyDef = KeyDef::optional(
    "batch.max.size",
    ValueKind::Int {
        min: 1,
        max: 100_000,
    },
    "1",
    "records of a request at most; of more than one, records are sent together whose method, URL and headers are the same",
)
.importance(Importance::High);
const BATCH_BYTES: KeyDef = KeyDef::optional(
    "batch.max.bytes",
    ValueKind::at_least(1),
    "1048576",
    "bytes of a body with more than one record at most, before compression",
);
const BATCH_FORMAT: KeyDef = KeyDef::optional(
    "batch.format",
    ValueKind::OneOf(&["json", "lines"]),
    "json",
    "form of a body with more than one record: json is an array, lines has a record a line",
);
const BATCH_PREFIX: KeyDef = KeyDef::unset(
    "batch.prefix",
    ValueKind::Text,
    "what stands before the first record, in place of what batch.format says",
)
.importance(Importance::Low);
const BATCH_SUFFIX: KeyDef = KeyDef::unset(
    "batch.suffix",
    ValueKind::Text,
    "what stands behind the last record, in place of what batch.format says",
)
.importance(Importance::Low);
const BATCH_SEPARATOR: KeyDef = KeyDef::unset(
    "batch.separator",
    ValueKind::Text,
    "what stands between two records, in place of what batch.format says",
)
.importance(Importance::Low);
const ITEMS: KeyDef = KeyDef::unset(
    "batch.response.items",
    ValueKind::Text,
    "where the answer to a batch has a JSON array with an item for each record, as a JSON pointer: / for the answer itself, /items for a field of it; left out, an answer is for all of its records",
);
const ITEM_STATUS: KeyDef = KeyDef::optional(
    "batch.response.status",
    ValueKind::Text,
    "/status",
    "where an item has its status, a number as in HTTP or a boolean, as a JSON pointer",
);
const ITEM_REASON: KeyDef = KeyDef::optional(
    "batch.response.reason",
    ValueKind::Text,
    "/error",
    "where an item says what went wrong, as a JSON pointer",
);

const RESPONSE_TOPIC: KeyDef = KeyDef::unset(
    "response.topic",
    ValueKind::Text,
    "topic that gets the body of each answer that means written, with the record's key; the record counts as written once it is there (also reporter.result.topic.name)",
);
const RESPONSE_LOG: KeyDef = KeyDef::optional(
    "response.log",
    ValueKind::OneOf(&["none", "failed", "all"]),
    "none",
    "which answers are logged with the beginning of their bodies",
);
const RESPONSE_BYTES: KeyDef = KeyDef::optional(
    "response.max.bytes",
    ValueKind::Int {
        min: 0,
        max: 64 << 20,
    },
    "1048576",
    "bytes of an answer's body that are read at most",
);

const AUTH_TYPE: KeyDef = KeyDef::optional(
    "auth.type",
    ValueKind::OneOf(&["none", "basic", "bearer", "static", "oauth2"]),
    "none",
    "how requests authenticate: basic with connection.user and connection.password, bearer with bearer.token, static with http.headers.authorization, oauth2 with a token of client credentials (also http.authorization.type)",
);
const USER: KeyDef = KeyDef::unset(
    "connection.user",
    ValueKind::Text,
    "user of auth.type=basic",
);
const PASSWORD: KeyDef = KeyDef::unset(
    "connection.password",
    ValueKind::Password,
    "password of auth.type=basic",
);
const BEARER: KeyDef = KeyDef::unset(
    "bearer.token",
    ValueKind::Password,
    "token of auth.type=bearer",
);
const STATIC: KeyDef = KeyDef::unset(
    "http.headers.authorization",
    ValueKind::Password,
    "value of the header Authorization with auth.type=static",
);
const TOKEN_URL: KeyDef = KeyDef::unset(
    "oauth2.token.url",
    ValueKind::Text,
    "where tokens of auth.type=oauth2 come from (also oauth2.access.token.url)",
);
const CLIENT_ID: KeyDef = KeyDef::unset("oauth2.client.id", ValueKind::Text, "client id there");
const CLIENT_SECRET: KeyDef = KeyDef::unset(
    "oauth2.client.secret",
    ValueKind::Password,
    "client secret there",
);
const SCOPE: KeyDef = KeyDef::unset("oauth2.client.scope", ValueKind::Text, "scope asked for");
const TOKEN_PROPERTY: KeyDef = KeyDef::optional(
    "oauth2.token.property",
    ValueKind::NonBlank,
    "access_token",
    "field of the answer with the token (also oauth2.response.token.property)",
)
.importance(Importance::Low);
const CLIENT_MODE: KeyDef = KeyDef::optional(
    "oauth2.client.auth.mode",
    ValueKind::OneOf(&["header", "url"]),
    "header",
    "whether client id and secret go in a header or in the form (also oauth2.client.authorization.mode)",
)
.importance(Importance::Low);

const PROXY_HOST: KeyDef = KeyDef::unset(
    "http.proxy.host",
    ValueKind::Text,
    "host of the HTTP proxy that all requests go through",
);
const PROXY_PORT: KeyDef = KeyDef::optional(
    "http.proxy.port",
    ValueKind::Int {
        min: 1,
        max: 65_535,
    },
    "8080",
    "its port",
);
const PROXY_USER: KeyDef = KeyDef::unset("http.proxy.user", ValueKind::Text, "user there");
const PROXY_PASSWORD: KeyDef =
    KeyDef::unset("http.proxy.password", ValueKind::Password, "password there");

/// A key of TLS, as of Kafka's clients.
const fn tls(name: &'static str, kind: ValueKind, doc: &'static str) -> KeyDef {
    KeyDef::unset(name, kind, doc).importance(Importance::Low)
}

/// What the keys of TLS have before Kafka's names.
pub(super) const TLS_PREFIX: &str = "https.";

/// A key's other name. Where both are set, that is an error.
pub(super) const ALIASES: &[(&str, &str)] = &[
    ("http.url", "http.api.url"),
    ("http.method", "request.method"),
    ("http.headers", "headers"),
    ("http.headers", "http.headers.additional"),
    ("http.headers.separator", "header.separator"),
    ("http.status.later", "retry.on.status.codes"),
    ("auth.type", "http.authorization.type"),
    ("oauth2.token.url", "oauth2.access.token.url"),
    ("oauth2.token.property", "oauth2.response.token.property"),
    (
        "oauth2.client.auth.mode",
        "oauth2.client.authorization.mode",
    ),
    ("response.topic", "reporter.result.topic.name"),
];

/// The alias whose headers are separated by commas.
pub(super) const COMMA_HEADERS: &str = "http.headers.additional";

/// Another name of a key.
const fn alias(name: &'static str, of: &KeyDef, doc: &'static str) -> KeyDef {
    KeyDef::unset(name, of.kind, doc).alias_of(of.name)
}

pub(super) const KEYS: &[KeyDef] = &[
    URL,
    METHOD,
    HEADERS,
    HEADERS_SECRET,
    HEADERS_SEPARATOR,
    CONTENT_TYPE,
    BODY,
    BODY_ESCAPE,
    NULL_VALUES,
    VERSION,
    COMPRESSION,
    IDEMPOTENCY,
    REDIRECTS,
    CONNECT_TIMEOUT,
    REQUEST_TIMEOUT,
    CONCURRENCY_START,
    CONCURRENCY_MAX,
    WRITTEN,
    LATER,
    REFUSED,
    BATCH_SIZE,
    BATCH_BYTES,
    BATCH_FORMAT,
    BATCH_PREFIX,
    BATCH_SUFFIX,
    BATCH_SEPARATOR,
    ITEMS,
    ITEM_STATUS,
    ITEM_REASON,
    RESPONSE_TOPIC,
    RESPONSE_LOG,
    RESPONSE_BYTES,
    AUTH_TYPE,
    USER,
    PASSWORD,
    BEARER,
    STATIC,
    TOKEN_URL,
    CLIENT_ID,
    CLIENT_SECRET,
    SCOPE,
    TOKEN_PROPERTY,
    CLIENT_MODE,
    PROXY_HOST,
    PROXY_PORT,
    PROXY_USER,
    PROXY_PASSWORD,
    tls(
        "https.ssl.truststore.location",
        ValueKind::Text,
        "file with the certificates that are trusted, PEM or PKCS12; left out, those of the system",
    ),
    tls(
        "https.ssl.truststore.type",
        ValueKind::Text,
        "PEM or PKCS12; left out, by the file's content",
    ),
    tls(
        "https.ssl.truststore.password",
        ValueKind::Password,
        "password of the truststore",
    ),
    tls(
        "https.ssl.truststore.certificates",
        ValueKind::Text,
        "the certificates that are trusted, as PEM text",
    ),
    tls(
        "https.ssl.keystore.location",
        ValueKind::Text,
        "file with this client's certificate and key, PEM or PKCS12",
    ),
    tls(
        "https.ssl.keystore.type",
        ValueKind::Text,
        "PEM or PKCS12; left out, by the file's content",
    ),
    tls(
        "https.ssl.keystore.password",
        ValueKind::Password,
        "password of the keystore",
    ),
    tls(
        "https.ssl.keystore.certificate.chain",
        ValueKind::Text,
        "this client's certificates, as PEM text",
    ),
    tls(
        "https.ssl.keystore.key",
        ValueKind::Password,
        "this client's private key, as PEM text",
    ),
    tls(
        "https.ssl.key.password",
        ValueKind::Password,
        "password of the private key",
    ),
    tls(
        "https.ssl.endpoint.identification.algorithm",
        ValueKind::Text,
        "https checks the server's name in its certificate, empty doesn't; left out, it does",
    ),
    tls(
        "https.ssl.enabled.protocols",
        ValueKind::List,
        "TLSv1.2, TLSv1.3 or both",
    ),
    tls(
        "https.ssl.protocol",
        ValueKind::Text,
        "TLSv1.3, or TLSv1.2 for that alone",
    ),
    tls(
        "https.ssl.cipher.suites",
        ValueKind::List,
        "cipher suites that may be used, by their IANA names",
    ),
    alias("http.api.url", &URL, "another name of http.url"),
    alias("request.method", &METHOD, "another name of http.method"),
    alias("headers", &HEADERS, "another name of http.headers"),
    KeyDef::unset(
        COMMA_HEADERS,
        ValueKind::List,
        "http.headers with commas in between",
    )
    .alias_of(HEADERS.name),
    alias(
        "header.separator",
        &HEADERS_SEPARATOR,
        "another name of http.headers.separator",
    ),
    alias(
        "retry.on.status.codes",
        &LATER,
        "another name of http.status.later; 400- is 400-599",
    ),
    alias(
        "http.authorization.type",
        &AUTH_TYPE,
        "another name of auth.type",
    ),
    alias(
        "oauth2.access.token.url",
        &TOKEN_URL,
        "another name of oauth2.token.url",
    ),
    alias(
        "oauth2.response.token.property",
        &TOKEN_PROPERTY,
        "another name of oauth2.token.property",
    ),
    alias(
        "oauth2.client.authorization.mode",
        &CLIENT_MODE,
        "another name of oauth2.client.auth.mode",
    ),
    alias(
        "reporter.result.topic.name",
        &RESPONSE_TOPIC,
        "another name of response.topic",
    ),
];
