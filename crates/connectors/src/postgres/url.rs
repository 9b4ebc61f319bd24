//! Where the database is: JDBC's URL or libpq's.

use std::fmt;
use std::path::PathBuf;

/// A database and how to get to it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Target {
    /// Names or addresses with ports, tried in turn; a name that begins with `/` is the folder of a socket.
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) database: Option<String>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) tls: Tls,
    /// PEM files.
    pub(super) root_certificates: Option<PathBuf>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) key_password: Option<String>,
    pub(super) search_path: Option<String>,
    pub(super) application: Option<String>,
    /// Settings of the session, as `-c name=value`.
    pub(super) options: Option<String>,
    /// Only a host that takes writes will do.
    pub(super) primary_only: bool,
    /// Parameters that mean nothing here.
    pub(super) unknown: Vec<String>,
}

/// How the connection is secured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tls {
    /// Not at all.
    #[default]
    Off,
    /// The server has a certificate of a trusted authority.
    VerifyAuthority,
    /// And it is for the host that is connected to.
    VerifyFull,
}

/// Without passwords.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("place", &self.place())
            .field("user", &self.user)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl Target {
    /// Reads `jdbc:postgresql:…`, `postgresql://…` or `postgres://…`.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let url = url.trim();
        let is_jdbc = url.starts_with("jdbc:");
        let rest = url.strip_prefix("jdbc:").unwrap_or(url);
        let rest = ["postgresql:", "postgres:"]
            .iter()
            .find_map(|scheme| rest.strip_prefix(scheme))
            .ok_or("is not the URL of a PostgreSQL database")?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let mut target = Self::default();
        match rest.strip_prefix("//") {
            Some(rest) => {
                let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
                target.set_database(database)?;
                target.set_place(place)?;
            }
            // JDBC's short form: a database of this machine.
            None if is_jdbc => target.set_database(rest.trim_start_matches('/'))?,
            None => return Err("lacks // after postgresql:".to_owned()),
        }
        for parameter in parameters.split('&').filter(|text| !text.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            target.set(&decoded(name)?, decoded(value)?)?;
        }
        if target.hosts.is_empty() {
            target.hosts.push(("localhost".to_owned(), PORT));
        }
        Ok(target)
    }

    /// Hosts and database, for messages.
    pub(super) fn place(&self) -> String {
        let hosts = self
            .hosts
            .iter()
            .map(|(host, port)| format!("{host}:{port}"));
        let hosts: Vec<_> = hosts.collect();
        format!(
            "{}/{}",
            hosts.join(","),
            self.database.as_deref().unwrap_or_default()
        )
    }

    fn set_database(&mut self, database: &str) -> Result<(), String> {
        self.database = Some(decoded(database)?).filter(|name| !name.is_empty());
        Ok(())
    }

    fn set_place(&mut self, place: &str) -> Result<(), String> {
        let (user, hosts) = match place.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, place),
        };
        if let Some(user) = user {
            let (user, password) = match user.split_once(':') {
                Some((user, password)) => (user, Some(decoded(password)?)),
                None => (user, None),
            };
            self.user = Some(decoded(user)?).filter(|name| !name.is_empty());
            self.password = password;
        }
        for host in hosts.split(',').filter(|host| !host.is_empty()) {
            self.hosts.push(host_and_port(host)?);
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "user" => self.user = Some(value),
            "password" => self.password = Some(value),
            "host" => {
                let hosts = value.split(',').map(host_and_port);
                self.hosts = hosts.collect::<Result<_, _>>()?;
            }
            "port" => {
                let port = port(&value)?;
                self.hosts.iter_mut().for_each(|host| host.1 = port);
            }
            "dbname" => self.database = Some(value),
            "ssl" if matches!(value.as_str(), "" | "true") && self.tls == Tls::Off => {
                self.tls = Tls::VerifyFull;
            }
            "ssl" => {}
            "sslmode" => self.tls = tls(&value)?,
            "sslrootcert" if value == "system" => {}
            "sslrootcert" => self.root_certificates = Some(PathBuf::from(value)),
            "sslcert" => self.certificate = Some(PathBuf::from(value)),
            "sslkey" => self.key = Some(PathBuf::from(value)),
            "sslpassword" => self.key_password = Some(value),
            "currentSchema" | "search_path" => self.search_path = Some(value),
            "ApplicationName" | "application_name" => self.application = Some(value),
            "options" => self.options = Some(value),
            "targetServerType" | "target_session_attrs" => {
                self.primary_only = matches!(value.as_str(), "primary" | "master" | "read-write");
            }
            name if NO_MATTER.contains(&name) => {}
            name => self.unknown.push(name.to_owned()),
        }
        Ok(())
    }
}

fn tls(mode: &str) -> Result<Tls, String> {
    match mode {
        // Who could read along could also say that there is no TLS: these two promise nothing.
        "disable" | "allow" | "prefer" => Ok(Tls::Off),
        "verify-ca" => Ok(Tls::VerifyAuthority),
        "require" | "verify-full" => Ok(Tls::VerifyFull),
        _ => Err("has an sslmode that isn't one of disable, allow, prefer, require, verify-ca, verify-full".to_owned()),
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("has an address without its ]")?;
        let number = rest.strip_prefix(':').map_or(Ok(PORT), port)?;
        return Ok((host.to_owned(), number));
    }
    match text.rsplit_once(':') {
        Some((host, number)) => Ok((decoded(host)?, port(number)?)),
        None => Ok((decoded(text)?, PORT)),
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| "has a port that isn't a number up to 65535".to_owned())
}

/// Text with `%41` for `A`.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "has a % that isn't followed by two hexadecimal digits of UTF-8".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

const PORT: u16 = 5432;

/// Parameters of the Java driver and of libpq that nobody misses.
const NO_MATTER: &[&str] = &[
    "reWriteBatchedInserts",
    "prepareThreshold",
    "preparedStatementCacheQueries",
    "preparedStatementCacheSizeMiB",
    "defaultRowFetchSize",
    "binaryTransfer",
    "stringtype",
    "tcpKeepAlive",
    "keepalives",
    "tcpNoDelay",
    "loginTimeout",
    "connectTimeout",
    "connect_timeout",
    "socketTimeout",
    "autosave",
    "assumeMinServerVersion",
    "sslfactory",
    "sslnegotiation",
    "gssEncMode",
    "gssencmode",
    "channel_binding",
    "channelBinding",
    "logUnclosedConnections",
    "readOnly",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_urls_are_read() {
        let url = "jdbc:postgresql://a:5433,[::1]/sh%6fp?user=u&password=p%40&ssl=true&currentSchema=s&x=1";
        let target = Target::parse(url).unwrap();
        assert_eq!(
            target.hosts,
            [("a".to_owned(), 5433), ("::1".to_owned(), 5432)]
        );
        assert_eq!(target.place(), "a:5433,::1:5432/shop");
        assert_eq!(
            (target.user.as_deref(), target.password.as_deref()),
            (Some("u"), Some("p@"))
        );
        assert_eq!(
            (target.tls, target.unknown),
            (Tls::VerifyFull, vec!["x".to_owned()])
        );
        let target = Target::parse("postgres://u:p%3A@h/d?sslmode=verify-ca").unwrap();
        assert_eq!(
            (target.password.as_deref(), target.tls),
            (Some("p:"), Tls::VerifyAuthority)
        );
        let target = Target::parse("jdbc:postgresql:shop").unwrap();
        assert_eq!(target.place(), "localhost:5432/shop");
        let target = Target::parse("postgresql://%2Ftmp/d").unwrap();
        assert_eq!(target.hosts, [("/tmp".to_owned(), 5432)]);
    }

    #[test]
    fn what_is_not_a_url_of_postgresql_is_refused_and_no_password_is_shown() {
        for url in [
            "jdbc:mysql://h/d",
            "h/d",
            "postgresql:d",
            "postgresql://h:x/d",
            "postgresql://h/%zz",
            "postgresql://h/d?sslmode=on",
        ] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
        let target = Target::parse("postgresql://u:hush@h/d").unwrap();
        assert!(!format!("{target:?}").contains("hush"));
    }
}
