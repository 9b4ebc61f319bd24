//! `sasl.jaas.config`: `LoginModule flag name="value" ... ;`
//!
//! The grammar is that of Kafka's Java clients, which read it with `java.io.StreamTokenizer`: words
//! of letters, digits, `.`, `-`, `_` and `$` that don't start with a digit; texts in `"` or `'` with
//! the escapes `\n \t \r \b \f \a \v`, octal ones, and any other character as itself; comments `//`,
//! `/* */`, and `/` to the end of the line.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::net::secret::Secret;

/// One login module with its options. The options' values are secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JaasConfig {
    /// The module's class, such as `org.apache.kafka.common.security.plain.PlainLoginModule`.
    pub login_module: String,
    /// Its options.
    pub options: BTreeMap<String, Secret>,
}

/// Why a text is no JAAS configuration. Holds no value of an option: one that ends too early leaves words
/// where names are expected, so that options are named only where the name is one of Kafka's. The
/// caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JaasError {
    /// Nothing in it.
    #[error("no login module")]
    Empty,
    /// No `required`, `requisite`, `sufficient` or `optional` behind the module.
    #[error("the login module is not followed by required, requisite, sufficient or optional")]
    ControlFlag,
    /// An option's name is missing.
    #[error("option number {number} has no name")]
    OptionName {
        /// 1 = the first.
        number: usize,
    },
    /// An option has no value, or one that would have to be quoted.
    #[error(
        "option {option} has no value that can be read; values with other characters than letters, digits, `.`, `-`, `_` and `$` need quotes: name=\"value\""
    )]
    OptionValue {
        /// Its name, or `number 3`.
        option: String,
    },
    /// An option stands there twice.
    #[error("option {option} is set twice")]
    OptionTwice {
        /// Its name, or `number 3`.
        option: String,
    },
    /// The text of an option has no closing quote.
    #[error("a quoted text does not end on its line")]
    OpenQuote,
    /// No `;` at the end.
    #[error("no semicolon at the end")]
    Semicolon,
    /// More than one module.
    #[error("more than one login module")]
    SeveralModules,
}

impl std::str::FromStr for JaasConfig {
    type Err = JaasError;

    fn from_str(text: &str) -> Result<Self, JaasError> {
        let mut tokens = Tokens::new(text);
        let Some(Token::Text(login_module)) = tokens.next()? else {
            return Err(JaasError::Empty);
        };
        match tokens.next()? {
            Some(Token::Text(flag)) if is_control_flag(&flag) => {}
            _ => return Err(JaasError::ControlFlag),
        }
        let mut options = BTreeMap::new();
        loop {
            let name = match tokens.next()? {
                Some(Token::Text(name)) => name,
                Some(Token::Other(';')) => break,
                None => return Err(JaasError::Semicolon),
                Some(Token::Other(_)) => {
                    return Err(JaasError::OptionName {
                        number: options.len() + 1,
                    });
                }
            };
            let value = match (tokens.next()?, tokens.next()?) {
                (Some(Token::Other('=')), Some(Token::Text(value))) => Secret::from(value),
                _ => {
                    let option = shown(&name, options.len() + 1);
                    return Err(JaasError::OptionValue { option });
                }
            };
            let option = shown(&name, options.len() + 1);
            if options.insert(name, value).is_some() {
                return Err(JaasError::OptionTwice { option });
            }
        }
        match tokens.next()? {
            None => Ok(Self {
                login_module,
                options,
            }),
            Some(_) => Err(JaasError::SeveralModules),
        }
    }
}

/// Options of Kafka's login modules.
const NAMES: [&str; 9] = [
    "username",
    "password",
    "tokenauth",
    "token",
    "tokenFile",
    "clientId",
    "clientSecret",
    "scope",
    "serviceName",
];

/// An option's name, if it can't be a part of a value.
fn shown(name: &str, number: usize) -> String {
    if NAMES.contains(&name) {
        name.to_owned()
    } else {
        format!("number {number}")
    }
}

fn is_control_flag(word: &str) -> bool {
    ["required", "requisite", "sufficient", "optional"]
        .iter()
        .any(|flag| word.eq_ignore_ascii_case(flag))
}

enum Token {
    /// A word or a quoted text.
    Text(String),
    /// Any other character, and numbers, which are no values in Java either.
    Other(char),
}

struct Tokens<'a> {
    characters: std::iter::Peekable<std::str::Chars<'a>>,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            characters: text.chars().peekable(),
        }
    }

    fn next(&mut self) -> Result<Option<Token>, JaasError> {
        loop {
            let Some(first) = self.characters.next() else {
                return Ok(None);
            };
            return Ok(Some(match first {
                '\0'..=' ' => continue,
                '/' => {
                    self.skip_comment();
                    continue;
                }
                '"' | '\'' => Token::Text(self.quoted(first)?),
                // Words may hold a minus and digits, but not start with what may be a number.
                '-' => Token::Other(first),
                _ if is_word(first) && !matches!(first, '0'..='9' | '.') => {
                    Token::Text(self.word(first))
                }
                '0'..='9' | '.' => {
                    self.word(first);
                    Token::Other(first)
                }
                _ => Token::Other(first),
            }));
        }
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(next) = self.characters.next_if(|next| is_word(*next)) {
            word.push(next);
        }
        word
    }

    fn quoted(&mut self, quote: char) -> Result<String, JaasError> {
        let mut text = String::new();
        loop {
            match self.characters.next() {
                None | Some('\n' | '\r') => return Err(JaasError::OpenQuote),
                Some(end) if end == quote => return Ok(text),
                Some('\\') => match self.characters.next() {
                    None => return Err(JaasError::OpenQuote),
                    Some(escaped) => text.push(self.escape(escaped)),
                },
                Some(other) => text.push(other),
            }
        }
    }

    fn escape(&mut self, escaped: char) -> char {
        match escaped {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            // Up to three octal digits, at most \377.
            '0'..='7' => {
                let digits_max = if escaped <= '3' { 3 } else { 2 };
                let mut code = escaped.to_digit(8).unwrap_or(0);
                for _ in 1..digits_max {
                    let Some(digit) = self.characters.next_if(|next| next.is_digit(8)) else {
                        break;
                    };
                    code = code * 8 + digit.to_digit(8).unwrap_or(0);
                }
                char::from_u32(code).unwrap_or(escaped)
            }
            other => other,
        }
    }

    fn skip_comment(&mut self) {
        if self.characters.next_if_eq(&'*').is_some() {
            let mut last = ' ';
            for next in self.characters.by_ref() {
                if last == '*' && next == '/' {
                    return;
                }
                last = next;
            }
        } else {
            while self
                .characters
                .next_if(|next| !matches!(next, '\n' | '\r'))
                .is_some()
            {}
        }
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '.' | '-' | '_' | '$')
        || character >= '\u{a0}'
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".*", quoted in "[\"'\\\\/*=; a-z0-9\\n]*") {
            drop(text.parse::<JaasConfig>());
            drop(format!("M required a={quoted}").parse::<JaasConfig>());
        }

        #[test]
        fn every_text_can_be_quoted(text in "[^\r\n]*") {
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            proptest::prop_assert_eq!(value(&format!("\"{quoted}\"")), text);
        }
    }

    fn options(text: &str) -> Vec<(String, String)> {
        let config: JaasConfig = text.parse().unwrap();
        let options = config.options.iter();
        options
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect()
    }

    fn value(text: &str) -> String {
        options(&format!("M required v={text};")).remove(0).1
    }

    #[test]
    fn module_and_options_are_read() {
        let text = "org.apache.kafka.common.security.plain.PlainLoginModule required\n  username=\"alice\"\n  password=\"alice-secret\";";
        let config: JaasConfig = text.parse().unwrap();
        assert_eq!(
            config.login_module,
            "org.apache.kafka.common.security.plain.PlainLoginModule"
        );
        assert_eq!(config.options["username"].expose(), "alice");
        assert_eq!(config.options["password"].expose(), "alice-secret");
        assert!(!format!("{config:?}").contains("alice"));
    }

    #[test]
    fn quoting_is_javas() {
        for (text, expected) in [
            (r#""a b""#, "a b"),
            (r#"'a "b" c'"#, r#"a "b" c"#),
            (r#""a \"b\" \\ c""#, r#"a "b" \ c"#),
            (
                r#""\ttab\nline\r\b\f\a\v""#,
                "\ttab\nline\r\u{8}\u{c}\u{7}\u{b}",
            ),
            (r#""\101\60\0\4567\q""#, "A0\0%67q"),
            (r#""a;b=c//d/*e*/#f""#, "a;b=c//d/*e*/#f"),
            (r#""""#, ""),
            ("plain_Word-1.$x", "plain_Word-1.$x"),
            ("ÄÖü日本", "ÄÖü日本"),
            ("true", "true"),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_are_skipped() {
        let text = "// first\nM /* a * b */ Required / to the end\n a=\"1\" // x=\"2\"\n ;// end";
        assert_eq!(options(text), [("a".to_owned(), "1".to_owned())]);
    }

    fn no_value(option: &str) -> JaasError {
        JaasError::OptionValue {
            option: option.into(),
        }
    }

    #[test]
    fn what_java_refuses_is_refused_without_the_value() {
        for (text, expected) in [
            ("", JaasError::Empty),
            ("  // nothing", JaasError::Empty),
            ("M", JaasError::ControlFlag),
            ("M maybe a=\"b\";", JaasError::ControlFlag),
            ("M required a=\"hush\"", JaasError::Semicolon),
            ("M required a \"hush\";", no_value("number 1")),
            ("M required password=12345;", no_value("password")),
            ("M required password=-hush;", no_value("password")),
            ("M required a=;", no_value("number 1")),
            (
                "M required username=a password=correct hush battery;",
                no_value("number 3"),
            ),
            (
                "M required password=\"correct\"hush\"battery\";",
                no_value("number 2"),
            ),
            ("M required =\"hush\";", JaasError::OptionName { number: 1 }),
            ("M required a=\"hush;", JaasError::OpenQuote),
            ("M required a=\"hush\n\";", JaasError::OpenQuote),
            (
                "M required token=\"hush\" token=\"hush\";",
                JaasError::OptionTwice {
                    option: "token".into(),
                },
            ),
            (
                "M required token=a hush=b hush=c;",
                JaasError::OptionTwice {
                    option: "number 3".into(),
                },
            ),
            (
                "M required a=\"hush\"; N required;",
                JaasError::SeveralModules,
            ),
        ] {
            let error = text.parse::<JaasConfig>().unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
        }
    }
}
