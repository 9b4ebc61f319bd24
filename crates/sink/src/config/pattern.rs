//! Patterns in Java's syntax, as far as a search in linear time can follow them.

use std::error::Error;
use std::fmt;

use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, BuildError};
use regex_automata::util::syntax;

/// A pattern in the syntax of Java's regular expressions that a whole text matches or not.
///
/// As in Java without flags, `\d`, `\w`, `\s` and case stand for ASCII. Matching takes time linear in
/// the text, whatever the pattern is, so that what Java does by going back isn't there: look-around,
/// back references, atomic groups and possessive quantifiers. `\Q…\E`, `\h`, `\R` and `\p{…}` aren't,
/// either. A compiled pattern takes at most 1 MiB.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    machine: PikeVM,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is wrong with it, as the second half of a sentence.
    pub fn new(text: &str) -> Result<Self, String> {
        if let Some(at) = possessive(text) {
            return Err(format!(
                "has a possessive quantifier ({at}), which isn't supported"
            ));
        }
        // By itself first: `a)(b` makes sense only between the parentheses of the whole.
        compile(text)?;
        Ok(Self {
            text: text.to_owned(),
            machine: compile(&format!(r"\A(?:{text})\z"))?,
        })
    }

    /// Whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let mut cache = self.machine.create_cache();
        self.machine.is_match(&mut cache, text)
    }

    /// The pattern, as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

fn compile(text: &str) -> Result<PikeVM, String> {
    PikeVM::builder()
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .thompson(
            thompson::Config::new()
                .utf8(false)
                .nfa_size_limit(Some(SIZE_MAX_BYTES)),
        )
        .build(text)
        .map_err(|error| reason(&error))
}

const SIZE_MAX_BYTES: usize = 1 << 20;

/// The one line that says what is wrong, of a text that draws the pattern and points into it.
fn reason(error: &BuildError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    let last = text.lines().last().unwrap_or_default();
    let reason = last.strip_prefix("error: ").unwrap_or(last);
    format!("is not a pattern that can be used here: {reason}")
}

/// A quantifier with a `+` behind it, outside of classes.
fn possessive(text: &str) -> Option<&str> {
    let (mut class_depth, mut is_escaped) = (0_u32, false);
    let mut quantifier = None;
    for (at, c) in text.char_indices() {
        let begins = quantifier.take();
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match c {
            '\\' => is_escaped = true,
            '[' => class_depth += 1,
            ']' => class_depth = class_depth.saturating_sub(1),
            '+' if class_depth == 0 && begins.is_some() => return text.get(begins?..=at),
            '*' | '+' | '?' | '}' if class_depth == 0 => quantifier = Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_text_matches_or_not() {
        for (pattern, matching, other) in [
            ("t-.*", "t-1", "at-1"),
            ("a|b", "b", "bc"),
            (r"orders\.\d+", "orders.12", "ordersx1"),
            ("[a-z&&[^q]]+", "abc", "abq"),
            ("(?i)ORDERS", "orders", "order"),
            ("(?<name>a)+?", "aa", "ab"),
            (r"a\*+", "a**", "a"),
            ("[*+]+", "*+", "a"),
        ] {
            let pattern = Pattern::new(pattern).unwrap();
            assert!(pattern.matches(matching), "{pattern:?} {matching}");
            assert!(!pattern.matches(other), "{pattern:?} {other}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_and_said() {
        for (pattern, says) in [
            ("(?!a).*", "look-around"),
            (r"(a)\1", "backreferences"),
            ("a*+b", "possessive quantifier (*+)"),
            ("a{2}+b", "possessive quantifier (}+)"),
            ("(?>a)b", "unrecognized flag"),
            (r"\Qa.b\E", "unrecognized escape sequence"),
            (r"\p{Alpha}", "Unicode"),
            ("a(", "unclosed group"),
            ("a)(b", "unopened group"),
            ("*", "repetition operator missing expression"),
            ("(a{1000}){1000}", "exceeded limit"),
        ] {
            let error = Pattern::new(pattern).unwrap_err();
            assert!(error.contains(says), "{pattern}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn matching_takes_linear_time() {
        let pattern = Pattern::new("(a*)*b").unwrap();
        assert!(!pattern.matches(&"a".repeat(10_000)));
    }
}
