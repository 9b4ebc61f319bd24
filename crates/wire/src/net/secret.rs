//! Passwords, keys and tokens.

use std::fmt;

/// A text that is never shown: `Debug` prints `[hidden]`, and there is no `Display`.
///
/// ```
/// use sharegroup_wire::net::Secret;
///
/// let secret = Secret::from("alice-secret");
/// assert_eq!(format!("{secret:?}"), "[hidden]");
/// assert_eq!(secret.expose(), "alice-secret");
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A peer's text with every occurrence of the secret taken out, so that an echo ends in no log.
    pub(crate) fn censor(&self, text: &str) -> String {
        if self.0.is_empty() {
            text.to_owned()
        } else {
            text.replace(&self.0, "[hidden]")
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
