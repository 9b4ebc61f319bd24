//! What clients are configured with: addresses, `sasl.jaas.config`, keys of security.

use sharegroup_wire::net::sasl::JaasConfig;
use sharegroup_wire::net::{Address, SecurityConfig};

/// Never to be seen where it is the value of a secret.
const SECRET: &str = "hush-hush-hush";

/// Input: which of them, and a text.
pub fn client_config(data: &[u8]) {
    let [which, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match which % 3 {
        0 => addresses(text),
        1 => jaas(text),
        _ => keys(text),
    }
}

fn addresses(text: &str) {
    let addresses = match Address::parse_list(text) {
        Ok(addresses) => addresses,
        Err(error) => return drop(error.to_string()),
    };
    assert!(!addresses.is_empty());
    for (index, address) in addresses.iter().enumerate() {
        assert!(!addresses[..index].contains(address), "twice: {address}");
        assert_eq!(address.to_string().parse().as_ref(), Ok(address));
    }
}

fn jaas(text: &str) {
    let config = match text.parse::<JaasConfig>() {
        Ok(config) => config,
        Err(error) => return drop(error.to_string()),
    };
    let quoted = |text: &str| {
        let escaped: String = text
            .chars()
            .map(|character| match character {
                '\n' => "\\n".to_owned(),
                '\r' => "\\r".to_owned(),
                '"' | '\\' => format!("\\{character}"),
                other => other.to_string(),
            })
            .collect();
        format!("\"{escaped}\"")
    };
    let options: String = config
        .options
        .iter()
        .map(|(name, value)| format!(" {}={}", quoted(name), quoted(value.expose())))
        .collect();
    let again = format!("{} required{options};", quoted(&config.login_module));
    assert_eq!(again.parse(), Ok(config));
}

/// One `key=value` a line; all of SASL is then taken as credentials.
fn keys(text: &str) {
    let mut config = SecurityConfig::default();
    let mut seen = String::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        match config.set(key, value) {
            Ok(_) => {}
            Err(error) => seen += &error.to_string(),
        }
        // Everything else may be shown.
        if value.contains(SECRET) && !is_secret(key) {
            return;
        }
    }
    match config.credentials() {
        Ok(credentials) => seen += &format!("{credentials:?}"),
        Err(error) => seen += &error.to_string(),
    }
    seen += &format!("{config:?}");
    assert!(!seen.contains(SECRET), "{seen}");
}

fn is_secret(key: &str) -> bool {
    key.ends_with(".password") || key == "ssl.keystore.key"
}
