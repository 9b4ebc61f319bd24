//! Credentials from Kafka's configuration keys.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::credentials::{Credentials, ScramAlgorithm};
use super::error::SaslError;
use super::jaas::JaasConfig;
use super::oauth::{StaticToken, TokenFile, TokenSource, UnsecuredToken};
use super::oidc::ClientCredentials;
use super::oidc_options::OidcOptions;
use crate::net::connector::TcpConnector;
use crate::net::secret::Secret;
use crate::net::security::KeyError;

/// The keys of SASL, as Kafka's Java clients have them.
///
/// Beside Java's options of `OAuthBearerLoginModule`, `token="..."` and `tokenFile="..."` name a
/// token or its file.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct SaslOptions {
    /// `sasl.mechanism`. Java's default, GSSAPI, is not spoken here.
    pub mechanism: Option<String>,
    /// `sasl.jaas.config`.
    pub jaas_config: Option<JaasConfig>,
    /// `sasl.oauthbearer.token.endpoint.url` with a `file:` URL.
    pub token_file: Option<PathBuf>,
    /// The same with an `https:` URL, and the keys that belong to it.
    pub oidc: OidcOptions,
}

const MECHANISM: &str = "sasl.mechanism";
const JAAS_CONFIG: &str = "sasl.jaas.config";
const TOKEN_URL: &str = "sasl.oauthbearer.token.endpoint.url";
const CALLBACK_HANDLER: &str = "sasl.login.callback.handler.class";
const RETRIEVER: &str = "sasl.oauthbearer.jwt.retriever.class";

/// Kafka's classes that the keys above may name.
const CALLBACK_HANDLERS: &[&str] = &[
    "OAuthBearerLoginCallbackHandler",
    "OAuthBearerUnsecuredLoginCallbackHandler",
];
const RETRIEVERS: &[&str] = &[
    "ClientCredentialsJwtRetriever",
    "DefaultJwtRetriever",
    "FileJwtRetriever",
];

const PLAIN: &str = "PlainLoginModule";
const SCRAM: &str = "ScramLoginModule";
const OAUTHBEARER: &str = "OAuthBearerLoginModule";

impl SaslOptions {
    /// The keys that [`set`](Self::set) knows.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        [
            MECHANISM,
            JAAS_CONFIG,
            TOKEN_URL,
            CALLBACK_HANDLER,
            RETRIEVER,
        ]
        .into_iter()
        .chain(OidcOptions::KEYS.iter().copied())
    }

    /// Sets the value of one of Kafka's keys; an empty value takes it back. `false` = not one of
    /// [`keys`](Self::keys). The keys that name a Java class take Kafka's own, to no effect: what is
    /// done follows from the other keys.
    ///
    /// # Errors
    /// [`KeyError`] when the value is not one of the key's; it shows nothing of `sasl.jaas.config`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, KeyError> {
        let value = value.trim();
        let is_set = !value.is_empty();
        match key {
            MECHANISM => self.mechanism = is_set.then(|| value.to_ascii_uppercase()),
            JAAS_CONFIG => {
                let parsed = is_set.then(|| value.parse::<JaasConfig>()).transpose();
                self.jaas_config = parsed
                    .map_err(|error| KeyError::new(key, format!("cannot be read: {error}")))?;
            }
            TOKEN_URL => {
                self.token_file = file_of(value);
                let is_http = value.starts_with("https:") || value.starts_with("http:");
                if is_set && self.token_file.is_none() && !is_http {
                    let problem = "must be an https:, http: or file: URL".to_owned();
                    return Err(KeyError::new(key, problem));
                }
                self.oidc.token_endpoint = is_http.then(|| value.to_owned());
            }
            CALLBACK_HANDLER => class(key, value, CALLBACK_HANDLERS)?,
            RETRIEVER => class(key, value, RETRIEVERS)?,
            _ => return self.oidc.set(key, value),
        }
        Ok(true)
    }

    /// The credentials that the keys make together.
    ///
    /// # Errors
    /// [`SaslError::Config`], which says what is missing or doesn't go together.
    pub fn credentials(&self) -> Result<Credentials, SaslError> {
        match self.mechanism.as_deref() {
            Some("PLAIN") => {
                let login = self.login("PLAIN", PLAIN)?;
                let (username, password) = login.user()?;
                if username.contains('\0') || password.expose().contains('\0') {
                    return Err(config(
                        "username and password must not have a NUL for PLAIN",
                    ));
                }
                Ok(Credentials::Plain { username, password })
            }
            Some("SCRAM-SHA-256") => self.scram(ScramAlgorithm::Sha256),
            Some("SCRAM-SHA-512") => self.scram(ScramAlgorithm::Sha512),
            Some("OAUTHBEARER") => self.oauth_bearer(),
            Some(other) => Err(SaslError::Config {
                text: format!(
                    "{MECHANISM} is `{other}`, but must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
                ),
            }),
            None => Err(SaslError::Config {
                text: format!(
                    "{MECHANISM} is not set, and its default in Kafka, GSSAPI, is not available here; set PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
                ),
            }),
        }
    }

    fn scram(&self, algorithm: ScramAlgorithm) -> Result<Credentials, SaslError> {
        let login = self.login(algorithm.mechanism(), SCRAM)?;
        let (username, password) = login.user()?;
        Ok(Credentials::Scram {
            algorithm,
            username,
            password,
            is_delegation_token: login.text("tokenauth").eq_ignore_ascii_case("true"),
        })
    }

    fn oauth_bearer(&self) -> Result<Credentials, SaslError> {
        let login = match (&self.jaas_config, &self.token_file) {
            // The file, or the endpoint with its keys, is all that is needed.
            (None, Some(file)) => {
                return Ok(Credentials::OauthBearer {
                    source: Arc::new(TokenFile(file.clone())),
                    extensions: Vec::new(),
                });
            }
            (None, None) if self.oidc.token_endpoint.is_some() => {
                return Ok(Credentials::OauthBearer {
                    source: Arc::new(client_credentials(self.oidc.clone())?),
                    extensions: Vec::new(),
                });
            }
            _ => self.login("OAUTHBEARER", OAUTHBEARER)?,
        };
        let file = login.option("tokenFile").map(PathBuf::from);
        let source: Arc<dyn TokenSource> = match (login.option("token"), file, &self.token_file) {
            (Some(token), None, None) => Arc::new(StaticToken(token.into())),
            (None, Some(file), None) => Arc::new(TokenFile(file)),
            (None, None, Some(file)) => Arc::new(TokenFile(file.clone())),
            (None, None, None) if self.oidc.token_endpoint.is_some() => {
                Arc::new(client_credentials(login.oidc(&self.oidc)?)?)
            }
            (None, None, None) => Arc::new(login.unsecured_token()?),
            _ => {
                return Err(config(
                    "more than one of the options token and tokenFile and the key sasl.oauthbearer.token.endpoint.url is set",
                ));
            }
        };
        Ok(Credentials::OauthBearer {
            source,
            extensions: login.extensions(),
        })
    }

    fn login(&self, mechanism: &str, module: &'static str) -> Result<Login<'_>, SaslError> {
        let Some(jaas) = &self.jaas_config else {
            return Err(SaslError::Config {
                text: format!("{JAAS_CONFIG} is not set; {mechanism} needs its {module}"),
            });
        };
        // The package doesn't matter: some vendors ship Kafka's classes in their own.
        let name = jaas.login_module.rsplit('.').next().unwrap_or_default();
        if name != module {
            return Err(SaslError::Config {
                text: format!(
                    "{JAAS_CONFIG} has another login module than {mechanism} needs, which is {module}"
                ),
            });
        }
        Ok(Login { jaas, module })
    }
}

/// A login module that fits its mechanism.
struct Login<'a> {
    jaas: &'a JaasConfig,
    module: &'static str,
}

impl<'a> Login<'a> {
    fn option(&self, name: &str) -> Option<&'a str> {
        self.jaas.options.get(name).map(Secret::expose)
    }

    fn text(&self, name: &str) -> &'a str {
        self.option(name).unwrap_or_default()
    }

    fn user(&self) -> Result<(String, Secret), SaslError> {
        let required = |name| {
            let value = self.option(name).filter(|value| !value.is_empty());
            value.ok_or_else(|| SaslError::Config {
                text: format!("{JAAS_CONFIG}: {} needs the option {name}", self.module),
            })
        };
        Ok((
            required("username")?.to_owned(),
            required("password")?.into(),
        ))
    }

    /// Options that start with `prefix`, without it.
    fn with_prefix(&self, prefix: &'static str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.jaas
            .options
            .iter()
            .filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.expose())))
    }

    fn unsecured_token(&self) -> Result<UnsecuredToken, SaslError> {
        let principal = self
            .option("unsecuredLoginPrincipalClaimName")
            .unwrap_or("sub");
        let subject = self.option(&format!("unsecuredLoginStringClaim_{principal}"));
        if subject.is_none_or(str::is_empty) {
            return Err(SaslError::Config {
                text: format!(
                    "{JAAS_CONFIG}: {OAUTHBEARER} needs one of the options token, tokenFile and unsecuredLoginStringClaim_{principal}"
                ),
            });
        }
        let mut token = UnsecuredToken::new("");
        for (name, value) in self.with_prefix("unsecuredLoginStringClaim_") {
            token = token.with_text(name, value);
        }
        for (name, value) in self.with_prefix("unsecuredLoginNumberClaim_") {
            let number = value.parse().map_err(|_| bad_number(name))?;
            token = token.with_number(name, number);
        }
        for (name, value) in self.with_prefix("unsecuredLoginListClaim_") {
            // The first character tells what separates the others.
            let mut characters = value.chars();
            let separator = characters.next().unwrap_or(',');
            let list = characters.as_str();
            let items = list.split(separator).filter(|_| !list.is_empty());
            token = token.with_list(name, items);
        }
        if let Some(seconds) = self.option("unsecuredLoginLifetimeSeconds") {
            let seconds = seconds
                .parse()
                .map_err(|_| bad_number("unsecuredLoginLifetimeSeconds"))?;
            token = token.with_lifetime(Duration::from_secs(seconds));
        }
        Ok(token)
    }

    /// With the options of the module, which count where their keys are not set.
    fn oidc(&self, keys: &OidcOptions) -> Result<OidcOptions, SaslError> {
        let mut oidc = keys.clone();
        if oidc.client_id.is_empty() {
            self.text("clientId").clone_into(&mut oidc.client_id);
        }
        if oidc.client_secret == Secret::default() {
            oidc.client_secret = self.text("clientSecret").into();
        }
        let scope = self.option("scope").filter(|scope| !scope.is_empty());
        oidc.scope = oidc.scope.or_else(|| scope.map(str::to_owned));
        for (name, value) in &self.jaas.options {
            oidc.tls
                .set(name, value.expose())
                .map_err(|error| config(&error.to_string()))?;
        }
        Ok(oidc)
    }

    fn extensions(&self) -> Vec<(String, String)> {
        self.with_prefix("unsecuredLoginExtension_")
            .chain(self.with_prefix("extension_"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}

fn client_credentials(options: OidcOptions) -> Result<ClientCredentials, SaslError> {
    ClientCredentials::new(options, Arc::new(TcpConnector::default()))
}

/// Checks the name of a Java class; its package doesn't matter.
fn class(key: &str, value: &str, known: &[&str]) -> Result<(), KeyError> {
    let name = value.rsplit('.').next().unwrap_or_default();
    if value.is_empty() || known.contains(&name) {
        return Ok(());
    }
    let problem = format!(
        "is `{value}`, but no Java class can be loaded here; known are {}",
        known.join(" and ")
    );
    Err(KeyError::new(key, problem))
}

fn config(text: &str) -> SaslError {
    SaslError::Config {
        text: format!("{JAAS_CONFIG}: {text}"),
    }
}

fn bad_number(option: &str) -> SaslError {
    config(&format!("the option {option} is not a number"))
}

/// The path of `file:/path` and `file:///path`.
fn file_of(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("file:")?;
    let path = path.strip_prefix("//").map_or(Some(path), |rest| {
        rest.find('/').and_then(|at| rest.get(at..))
    })?;
    (!path.is_empty()).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(mechanism: &str, jaas: &str) -> SaslOptions {
        let mut options = SaslOptions::default();
        options.set(MECHANISM, mechanism).unwrap();
        options.set(JAAS_CONFIG, jaas).unwrap();
        options
    }

    #[test]
    fn every_mechanism_is_made_of_its_keys() {
        let user = "username=\"alice\" password=\"hush\";";
        for (mechanism, module) in [
            (
                "PLAIN",
                "org.apache.kafka.common.security.plain.PlainLoginModule",
            ),
            (
                "SCRAM-SHA-256",
                "org.apache.kafka.common.security.scram.ScramLoginModule",
            ),
            (
                "SCRAM-SHA-512",
                "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule",
            ),
        ] {
            let options = options(mechanism, &format!("{module} required {user}"));
            let credentials = options.credentials().unwrap();
            assert_eq!(credentials.mechanism(), mechanism);
            assert!(!format!("{options:?} {credentials:?}").contains("hush"));
        }
        for jaas in [
            "OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"alice\" unsecuredLoginListClaim_scope=\",a,b\" unsecuredLoginNumberClaim_n=\"1\" unsecuredLoginLifetimeSeconds=\"60\";",
            "OAuthBearerLoginModule required token=\"hush\" extension_traceId=\"1\";",
            "OAuthBearerLoginModule required tokenFile=\"/token\";",
        ] {
            let credentials = options("OAUTHBEARER", jaas).credentials().unwrap();
            assert_eq!(credentials.mechanism(), "OAUTHBEARER");
            assert!(!format!("{credentials:?}").contains("hush"));
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (mechanism, jaas, expected) in [
            ("", "", "GSSAPI"),
            ("GSSAPI", "", "must be PLAIN"),
            ("PLAIN", "", "sasl.jaas.config is not set"),
            (
                "PLAIN",
                "ScramLoginModule required username=\"a\" password=\"hush\";",
                "which is PlainLoginModule",
            ),
            (
                "PLAIN",
                "PlainLoginModule required password=\"hush\";",
                "needs the option username",
            ),
            (
                "SCRAM-SHA-256",
                "ScramLoginModule required username=\"a\";",
                "needs the option password",
            ),
            (
                "OAUTHBEARER",
                "OAuthBearerLoginModule required;",
                "unsecuredLoginStringClaim_sub",
            ),
            (
                "OAUTHBEARER",
                "OAuthBearerLoginModule required token=\"hush\" tokenFile=\"f\";",
                "more than one",
            ),
        ] {
            let error = options(mechanism, jaas)
                .credentials()
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(expected) && !error.contains("hush"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_jaas_text_that_cannot_be_read_is_not_shown() {
        let error = SaslOptions::default()
            .set(JAAS_CONFIG, "PlainLoginModule required password=\"hush")
            .unwrap_err();
        assert!(error.to_string().contains("sasl.jaas.config"), "{error}");
        assert!(!format!("{error} {error:?}").contains("hush"));
    }

    #[test]
    fn token_files_are_urls() {
        for (url, expected) in [
            ("file:/a/b", Some("/a/b")),
            ("file:///a/b", Some("/a/b")),
            ("file://localhost/a", Some("/a")),
            ("file:", None),
            ("https://a/b", None),
        ] {
            assert_eq!(file_of(url), expected.map(PathBuf::from), "{url}");
        }
    }
}
