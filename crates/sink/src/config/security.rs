//! TLS and SASL: the keys, and which of a worker's apply to whom.
//!
//! Source: the configuration definitions of Kafka 4.4's `SslConfigs` and `SaslConfigs`.

use sharegroup_consumer::client::ClientConfig;
use sharegroup_consumer::error::ConfigError;

use super::keys::{
    Effect, Known, NO_REST, Table, ValueKind, acts, all, find, forbidden, ignored, names, under,
};
use super::layers::{CONSUMERS, Layers, Setting};
use super::problem::ConfigProblem;

/// `security.protocol`, `ssl.*` and `sasl.*` of any client: without a prefix in a worker's file for
/// the admin client, and behind the prefix of a client.
pub(super) const SECURITY: Table = &[
    &under("TLS", TLS),
    &under("SASL", SASL),
    &under("Security: without meaning here", MEANINGLESS),
];

const TLS: [Known; 15] = [
    acts(
        "security.protocol",
        ValueKind::Text,
        "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    )
    .or("PLAINTEXT")
    .high(),
    acts(
        "ssl.truststore.location",
        ValueKind::Text,
        "file with the certificates that are trusted, PEM or PKCS12; left out, those of the system",
    ),
    acts(
        "ssl.truststore.type",
        ValueKind::Text,
        "PEM or PKCS12; left out, by the file's content",
    )
    .low(),
    acts(
        "ssl.truststore.password",
        ValueKind::Password,
        "password of the truststore",
    ),
    acts(
        "ssl.truststore.certificates",
        ValueKind::Text,
        "the certificates that are trusted, as PEM text",
    )
    .low(),
    acts(
        "ssl.keystore.location",
        ValueKind::Text,
        "file with this client's certificate and key, PEM or PKCS12",
    ),
    acts(
        "ssl.keystore.type",
        ValueKind::Text,
        "PEM or PKCS12; left out, by the file's content",
    )
    .low(),
    acts(
        "ssl.keystore.password",
        ValueKind::Password,
        "password of the keystore",
    ),
    acts(
        "ssl.keystore.certificate.chain",
        ValueKind::Text,
        "this client's certificates, as PEM text",
    )
    .low(),
    acts(
        "ssl.keystore.key",
        ValueKind::Password,
        "this client's private key, as PEM text",
    )
    .low(),
    acts(
        "ssl.key.password",
        ValueKind::Password,
        "password of the private key",
    )
    .low(),
    acts(
        "ssl.endpoint.identification.algorithm",
        ValueKind::Text,
        "https checks the broker's name in its certificate, empty doesn't",
    )
    .or("https")
    .low(),
    acts(
        "ssl.enabled.protocols",
        ValueKind::List,
        "TLSv1.2, TLSv1.3 or both",
    )
    .low(),
    acts(
        "ssl.protocol",
        ValueKind::Text,
        "TLSv1.3, or TLSv1.2 for that alone",
    )
    .low(),
    acts(
        "ssl.cipher.suites",
        ValueKind::List,
        "cipher suites that may be used, by their IANA names",
    )
    .low(),
];

const SASL: [Known; 17] = [
    acts(
        "sasl.mechanism",
        ValueKind::Text,
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
    ),
    acts(
        "sasl.jaas.config",
        ValueKind::Password,
        "user and password, as a line for one of Kafka's login modules",
    ),
    acts(
        "sasl.oauthbearer.token.endpoint.url",
        ValueKind::Text,
        "where OAUTHBEARER gets its tokens: an https: URL of a provider, or file:/path",
    )
    .low(),
    acts(
        "sasl.login.callback.handler.class",
        ValueKind::Text,
        "Kafka's class that reads a token from a URL or a file; others are refused",
    )
    .low(),
    acts(
        "sasl.oauthbearer.jwt.retriever.class",
        ValueKind::Text,
        "Kafka's class that reads a token from a URL or a file; others are refused",
    )
    .low(),
    acts(
        "sasl.oauthbearer.client.credentials.client.id",
        ValueKind::Text,
        "client id for the token's provider",
    )
    .low(),
    acts(
        "sasl.oauthbearer.client.credentials.client.secret",
        ValueKind::Password,
        "secret for the token's provider",
    )
    .low(),
    acts(
        "sasl.oauthbearer.scope",
        ValueKind::Text,
        "scope that is asked for",
    )
    .low(),
    acts(
        "sasl.oauthbearer.header.urlencode",
        ValueKind::Text,
        "whether id and secret are encoded for a URL before they are sent",
    )
    .low(),
    acts(
        "sasl.login.connect.timeout.ms",
        ValueKind::Text,
        "time to connect to the token's provider, in milliseconds",
    )
    .low(),
    acts(
        "sasl.login.read.timeout.ms",
        ValueKind::Text,
        "time for its answer, in milliseconds",
    )
    .low(),
    acts(
        "sasl.login.retry.backoff.ms",
        ValueKind::Text,
        "pause after a first failed try at the provider, in milliseconds",
    )
    .low(),
    acts(
        "sasl.login.retry.backoff.max.ms",
        ValueKind::Text,
        "longest such pause, in milliseconds",
    )
    .low(),
    acts(
        "sasl.login.refresh.window.factor",
        ValueKind::Text,
        "part of a token's life after which it is renewed",
    )
    .low(),
    acts(
        "sasl.login.refresh.window.jitter",
        ValueKind::Text,
        "spread of that, as a part of the token's life",
    )
    .low(),
    acts(
        "sasl.login.refresh.min.period.seconds",
        ValueKind::Text,
        "least time between two renewals, in seconds",
    )
    .low(),
    acts(
        "sasl.login.refresh.buffer.seconds",
        ValueKind::Text,
        "time before a token's end by which it is renewed, in seconds",
    )
    .low(),
];

const MEANINGLESS: [Known; 17] = [
    forbidden("ssl.provider", ONE_TLS),
    forbidden("ssl.engine.factory.class", ONE_TLS),
    forbidden("security.providers", ONE_TLS),
    ignored("ssl.keymanager.algorithm", JSSE),
    ignored("ssl.trustmanager.algorithm", JSSE),
    ignored("ssl.secure.random.implementation", JSSE),
    acts(
        "ssl.client.auth",
        ValueKind::Text,
        "whether the REST API asks its clients for certificates",
    )
    .or("none")
    .low()
    .but(Effect::Later(NO_REST)),
    forbidden("sasl.login.class", NO_LOGIN_CLASS),
    forbidden("sasl.client.callback.handler.class", NO_LOGIN_CLASS),
    forbidden("sasl.oauthbearer.assertion.*", NO_ASSERTION),
    ignored("sasl.kerberos.*", NO_KERBEROS),
    ignored("sasl.oauthbearer.jwt.validator.class", NOT_VALIDATED),
    ignored("sasl.oauthbearer.jwks.*", NOT_VALIDATED),
    ignored("sasl.oauthbearer.expected.*", NOT_VALIDATED),
    ignored("sasl.oauthbearer.clock.skew.seconds", NOT_VALIDATED),
    ignored("sasl.oauthbearer.scope.claim.name", NOT_VALIDATED),
    ignored("sasl.oauthbearer.sub.claim.name", NOT_VALIDATED),
];

const ONE_TLS: &str = "no Java class is loaded, TLS is always that of rustls; remove this key and say with ssl.truststore.* and ssl.keystore.* what is trusted and shown";
const JSSE: &str = "it chooses a part of Java's TLS";
const NO_LOGIN_CLASS: &str = "no Java class is loaded; remove this key and use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER with sasl.jaas.config";
const NO_ASSERTION: &str = "signed assertions aren't sent; use a client id and secret (sasl.oauthbearer.client.credentials.*), or a token from a file (sasl.oauthbearer.token.endpoint.url=file:/…)";
const NO_KERBEROS: &str =
    "Kerberos (GSSAPI) isn't spoken; use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER";
const NOT_VALIDATED: &str = "the broker checks tokens, clients send them on";

/// What is to be said about a security key of Kafka's that a client does not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// It changes nothing: why.
    Ignored(&'static str),
    /// Without it the client would do something else than meant: what to do instead.
    Refused(&'static str),
}

/// Whether `key` is one of Kafka's security keys that no client here follows.
#[must_use]
pub fn unsupported_key(key: &str) -> Option<Unsupported> {
    match find(&[SECURITY], key)?.effect {
        Effect::Acts => None,
        Effect::Ignored(why) | Effect::Later(why) => Some(Unsupported::Ignored(why)),
        Effect::Refused(advice) => Some(Unsupported::Refused(advice)),
    }
}

/// The key that decides whether a client that has `key` of its own still inherits the others of its
/// family: a truststore is one thing, and so are a keystore and what goes with a SASL mechanism.
fn family(key: &str) -> &str {
    const SASL_MECHANISM: &str = "sasl.mechanism";
    let store = ["ssl.truststore.", "ssl.key"];
    if let Some(store) = store.into_iter().find(|store| key.starts_with(store)) {
        store
    } else if key.starts_with("sasl.") {
        SASL_MECHANISM
    } else {
        key
    }
}

/// Whether a client that has the keys `own` inherits `key` from another one.
pub(super) fn inherits<'k>(key: &str, mut own: impl Iterator<Item = &'k str>) -> bool {
    let family = family(key);
    !own.any(|own| own == key || own.starts_with(family))
}

/// Sets what one client has been told, and checks that its security keys work together and with the
/// files that they name.
pub(super) fn configure<'a>(
    client: &mut ClientConfig,
    find: impl Fn(&str) -> Option<Setting<'a>>,
    problems: &mut Vec<ConfigProblem>,
) {
    let mut push = |problem| {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    };
    let mut is_sound = true;
    // A client without TLS doesn't list the protocol, and refuses it.
    for key in ClientConfig::keys().iter().chain(&["security.protocol"]) {
        if *key == Layers::SERVERS {
            continue;
        }
        if let Some(setting) = find(key)
            && is_of_kind(CONSUMERS.tables, key, setting.value)
            && let Err(error) = client.set(key, setting.value)
        {
            is_sound = false;
            push(setting.problem(key, &error));
        }
    }
    if is_sound {
        let protocol = find("security.protocol").map_or(PLAINTEXT, |setting| setting.value);
        let idle = without_effect(protocol, &find);
        idle.into_iter().for_each(&mut push);
    }
    if is_sound && let Err(error) = client.check() {
        let text = error.to_string();
        let keys = names(&[SECURITY]);
        // The text names the key that is wrong, or the one that is missing.
        let named = keys.filter(|key| text.contains(key));
        let place = named.chain(["security.protocol"]).find_map(|key| {
            let setting = find(key)?;
            Some((key, setting))
        });
        if let Some((key, setting)) = place {
            push(setting.problem(key, &error));
        }
    }
}

/// Whether the check of the key's kind lets the value through; what it doesn't is told already.
pub(super) fn is_of_kind(tables: &[Table], key: &str, value: &str) -> bool {
    find(tables, key).is_none_or(|known| known.def.kind.check(value).is_ok())
}

/// Kafka's default of `security.protocol`.
const PLAINTEXT: &str = "PLAINTEXT";

/// A warning about the first key of TLS, and of SASL, that the protocol makes no use of: whoever sets it
/// believes the connection safer than it is.
fn without_effect<'a>(
    protocol: &str,
    find: impl Fn(&str) -> Option<Setting<'a>>,
) -> Vec<ConfigProblem> {
    let protocol = protocol.trim().to_ascii_uppercase();
    let families = [
        ("ssl.", protocol.ends_with("SSL"), "TLS", "SSL or SASL_SSL"),
        (
            "sasl.",
            protocol.starts_with("SASL_"),
            "SASL",
            "SASL_SSL or SASL_PLAINTEXT",
        ),
    ];
    let unused = families.into_iter().filter(|(_, is_used, ..)| !is_used);
    let first = unused.filter_map(|(prefix, _, name, protocols)| {
        let keys = all(&[SECURITY]);
        let acting = keys.filter(|known| matches!(known.effect, Effect::Acts));
        let mut set = acting
            .map(|known| known.def.name)
            .filter(|key| key.starts_with(prefix));
        let setting = set.find_map(&find)?;
        let message = format!("has no effect: security.protocol is {protocol}, without {name}");
        let problem = setting.file.problem(&setting.key, message);
        Some(
            problem
                .advice(format!("set security.protocol to {protocols}"))
                .warning(),
        )
    });
    first.collect()
}

impl Setting<'_> {
    /// An error of the client about this value of `key`, without saying again which key it is.
    pub(super) fn problem(&self, key: &str, error: &ConfigError) -> ConfigProblem {
        let text = error.to_string();
        let prefixes = [
            format!("`{key}` "),
            format!("`{key}`: "),
            format!("{key} "),
            format!("{key}={}: ", self.value),
        ];
        let mut bare = prefixes.iter().filter_map(|key| text.strip_prefix(key));
        let message = bare.next().unwrap_or(&text);
        self.file.problem(&self.key, message)
    }
}
