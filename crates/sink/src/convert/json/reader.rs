//! Reads JSON into a tree that borrows from the text.
//!
//! Takes what the Java converter's reader takes (a byte order mark, leading zeros), but UTF-8 alone.
//! Nesting is bounded, and the tree by its text: nothing is reserved from a number that the text says.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::str::FromStr;

use crate::convert::ConvertError;
use crate::data::Digits;

/// A JSON value.
#[derive(Debug)]
pub(super) enum Node<'a> {
    /// There is no text at all, but for blanks. Only a lenient reader gives it.
    Missing,
    Null,
    Boolean(bool),
    Number(Number<'a>),
    Text(Cow<'a, str>),
    Array(Vec<Self>),
    /// Members in order, unlike each other.
    Object(Vec<(Cow<'a, str>, Self)>),
}

impl<'a> Node<'a> {
    /// Kind of value, for messages.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "nothing",
            Self::Null => "null",
            Self::Boolean(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    /// A member of an object.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let member = members.iter().find(|member| member.0 == name)?;
        Some(&member.1)
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A number as its text says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number<'a> {
    text: &'a str,
    /// Without point and exponent.
    pub(super) is_integral: bool,
}

impl Number<'_> {
    /// Its digits; the reader has let through only what has some.
    pub(super) fn digits(self) -> Result<Digits, ConvertError> {
        Digits::parse(self.text).ok_or_else(|| ConvertError::loss("number out of range"))
    }

    pub(super) fn is_negative(self) -> bool {
        self.text.starts_with('-')
    }

    /// The nearest float, if it is neither zero nor infinite: then nothing needs a closer look.
    pub(super) fn plain_float<F: FromStr + Into<f64> + Copy>(self) -> Option<F> {
        let float: F = self.text.parse().ok()?;
        let value: f64 = float.into();
        (value != 0.0 && value.is_finite()).then_some(float)
    }

    /// The number, if it is one of 64 bits without point and exponent.
    pub(super) fn small_integer(self) -> Option<i64> {
        self.text.parse().ok().filter(|_| self.is_integral)
    }
}

/// What was read.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) root: Node<'a>,
    /// The root's member `schema`.
    pub(super) schema: SchemaText,
}

/// How the root's member `schema` was read.
#[derive(Clone, Debug, Default)]
pub(super) enum SchemaText {
    /// There is none.
    #[default]
    Missing,
    /// It stands at these bytes.
    At(Range<usize>),
    /// It is the text that was known; its node is null.
    Known,
}

/// Reads one value. Lenient means: text behind it is passed over, the last of two members of one name
/// counts, half of a surrogate pair becomes U+FFFD, and no text is [`Node::Missing`].
///
/// `known_schema` is a member `schema` that was read before. Where it comes again it is passed over: most
/// records have the same one, and it is most of their text.
pub(super) fn read<'a>(
    bytes: &'a [u8],
    is_lenient: bool,
    known_schema: &str,
) -> Result<Document<'a>, ConvertError> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Err(malformed("invalid UTF-8", error.valid_up_to()).into()),
    };
    let mut reader = Reader {
        text,
        at: if text.starts_with(BYTE_ORDER_MARK) {
            BYTE_ORDER_MARK.len_utf8()
        } else {
            0
        },
        depth: 0,
        is_lenient,
        known_schema,
        schema: SchemaText::Missing,
    };
    reader.skip_blanks();
    if reader.peek().is_none() {
        if !is_lenient {
            return Err(reader
                .error("the value is empty; only a null value is a tombstone")
                .into());
        }
        return Ok(Document {
            root: Node::Missing,
            schema: SchemaText::Missing,
        });
    }
    let root = reader.value()?;
    reader.end(&root)?;
    Ok(Document {
        root,
        schema: reader.schema,
    })
}

struct Reader<'a, 'k> {
    text: &'a str,
    at: usize,
    depth: usize,
    is_lenient: bool,
    known_schema: &'k str,
    schema: SchemaText,
}

impl<'a> Reader<'a, '_> {
    fn value(&mut self) -> Result<Node<'a>, Malformed> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => Ok(Node::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Node::Boolean(true)),
            Some(b'f') => self.word("false", Node::Boolean(false)),
            Some(b'n') => self.word("null", Node::Null),
            Some(_) => Err(self.error("a value is expected")),
            None => Err(self.error("the text ends where a value is expected")),
        }
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<Node<'a>, Malformed>,
    ) -> Result<Node<'a>, Malformed> {
        if self.depth == DEPTH_MAX {
            return Err(self.error("nested more than 500 levels deep"));
        }
        self.at += 1;
        self.depth += 1;
        let node = read(self);
        self.depth -= 1;
        node
    }

    fn array(&mut self) -> Result<Node<'a>, Malformed> {
        let mut values = Vec::new();
        self.skip_blanks();
        if self.consume(b']') {
            return Ok(Node::Array(values));
        }
        loop {
            self.skip_blanks();
            values.push(self.value()?);
            self.skip_blanks();
            if self.consume(b']') {
                return Ok(Node::Array(values));
            }
            if !self.consume(b',') {
                return Err(self.error("`,` or `]` is expected"));
            }
        }
    }

    fn object(&mut self) -> Result<Node<'a>, Malformed> {
        let mut members = Vec::new();
        self.skip_blanks();
        if self.consume(b'}') {
            return Ok(Node::Object(members));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.error("the name of a member is expected"));
            }
            let name = self.string()?;
            self.skip_blanks();
            if !self.consume(b':') {
                return Err(self.error("`:` is expected"));
            }
            self.skip_blanks();
            let value = if self.depth == 1 && name == "schema" {
                self.schema()?
            } else {
                self.value()?
            };
            members.push((name, value));
            self.skip_blanks();
            if self.consume(b'}') {
                return self.unique(members).map(Node::Object);
            }
            if !self.consume(b',') {
                return Err(self.error("`,` or `}` is expected"));
            }
        }
    }

    fn schema(&mut self) -> Result<Node<'a>, Malformed> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        // An object's text is never the beginning of a longer one.
        if self.known_schema.starts_with('{') && rest.starts_with(self.known_schema) {
            self.at += self.known_schema.len();
            self.schema = SchemaText::Known;
            return Ok(Node::Null);
        }
        let start = self.at;
        let schema = self.value()?;
        self.schema = SchemaText::At(start..self.at);
        Ok(schema)
    }

    /// Of members with the same name the last one's value counts, in the place of the first.
    fn unique(&self, members: Vec<Member<'a>>) -> Result<Vec<Member<'a>>, Malformed> {
        let is_unique = if members.len() <= FEW_MEMBERS {
            let before = |index: usize| members.iter().take(index);
            let mut members = members.iter().enumerate();
            members.all(|(index, (name, _))| before(index).all(|earlier| earlier.0 != *name))
        } else {
            let mut names = std::collections::HashSet::with_capacity(members.len());
            members.iter().all(|(name, _)| names.insert(&**name))
        };
        if is_unique {
            return Ok(members);
        }
        if !self.is_lenient {
            return Err(self.error("two members of one object have the same name"));
        }
        let mut places: HashMap<Cow<'a, str>, usize> = HashMap::with_capacity(members.len());
        let mut unique: Vec<Member<'a>> = Vec::new();
        for (name, value) in members {
            match places.get(&name).and_then(|place| unique.get_mut(*place)) {
                Some(earlier) => earlier.1 = value,
                None => {
                    places.insert(name.clone(), unique.len());
                    unique.push((name, value));
                }
            }
        }
        Ok(unique)
    }

    fn number(&mut self) -> Result<Node<'a>, Malformed> {
        let start = self.at;
        self.consume(b'-');
        self.digits()?;
        let (mut is_integral, mut bytes_small) = (true, PLAIN_NUMBER_BYTES);
        if self.consume(b'.') {
            is_integral = false;
            self.digits()?;
        }
        if self.consume(b'e') || self.consume(b'E') {
            (is_integral, bytes_small) = (false, SMALL_NUMBER_BYTES);
            if !self.consume(b'+') {
                self.consume(b'-');
            }
            self.digits()?;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        if text.len() > bytes_small && Digits::parse(text).is_none() {
            return Err(malformed(
                "number of too many digits, or out of range",
                start,
            ));
        }
        Ok(Node::Number(Number { text, is_integral }))
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error("a digit is expected"));
        }
        Ok(())
    }

    fn word(&mut self, word: &str, node: Node<'a>) -> Result<Node<'a>, Malformed> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let follows = rest.strip_prefix(word).map(|rest| rest.chars().next());
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        if !matches!(follows, Some(next) if !next.is_some_and(is_word)) {
            return Err(self.error("an unknown word"));
        }
        self.at += word.len();
        Ok(node)
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Malformed> {
        self.at += 1;
        let start = self.at;
        self.skip_plain()?;
        let plain = self.text.get(start..self.at).unwrap_or_default();
        if self.consume(b'"') {
            return Ok(Cow::Borrowed(plain));
        }
        let mut text = plain.to_owned();
        while !self.consume(b'"') {
            self.escape(&mut text)?;
            let start = self.at;
            self.skip_plain()?;
            text.push_str(self.text.get(start..self.at).unwrap_or_default());
        }
        Ok(Cow::Owned(text))
    }

    /// Stops at a quote or a backslash.
    fn skip_plain(&mut self) -> Result<(), Malformed> {
        loop {
            match self.peek() {
                Some(b'"' | b'\\') => return Ok(()),
                Some(0..=0x1f) => return Err(self.error("a control character in a text")),
                Some(_) => self.at += 1,
                None => return Err(self.error("the text ends within a string")),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Malformed> {
        self.at += 1;
        let c = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                text.push(self.unicode_escape()?);
                return Ok(());
            }
            _ => return Err(self.error("an unknown escape")),
        };
        self.at += 1;
        text.push(c);
        Ok(())
    }

    fn unicode_escape(&mut self) -> Result<char, Malformed> {
        let unit = self.hex4()?;
        if let Some(c) = char::from_u32(unit) {
            return Ok(c);
        }
        let high = self.at;
        if unit < 0xdc00 && self.consume(b'\\') && self.consume(b'u') {
            let low = self.hex4()?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        if !self.is_lenient {
            return Err(malformed("half of a surrogate pair", high));
        }
        self.at = high;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex4(&mut self) -> Result<u32, Malformed> {
        let digits = self.text.get(self.at..self.at + 4);
        let is_hex = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let unit = digits
            .filter(is_hex)
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.error("four hexadecimal digits are expected"))?;
        self.at += 4;
        Ok(unit)
    }

    /// Nothing may follow the value but blanks; a lenient reader only looks that a number really ends.
    fn end(&mut self, root: &Node<'_>) -> Result<(), Malformed> {
        let end = self.at;
        self.skip_blanks();
        let is_split = matches!(root, Node::Number(_)) && self.at == end;
        if self.peek().is_some() && (!self.is_lenient || is_split) {
            return Err(self.error("text behind the value"));
        }
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn consume(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn error(&self, reason: &'static str) -> Malformed {
        malformed(reason, self.at)
    }
}

/// A member of an object.
pub(super) type Member<'a> = (Cow<'a, str>, Node<'a>);

/// What is wrong, and where: small, since each level of nesting has room for a few.
#[derive(Debug)]
struct Malformed {
    reason: &'static str,
    at: usize,
}

impl From<Malformed> for ConvertError {
    fn from(Malformed { reason, at }: Malformed) -> Self {
        Self::Json { reason, at }
    }
}

const fn malformed(reason: &'static str, at: usize) -> Malformed {
    Malformed { reason, at }
}

/// Arrays and objects within each other; the Java converter allows 1,000. Each level takes stack, most of it
/// in builds without optimization.
pub(super) const DEPTH_MAX: usize = 500;

/// Up to here names are compared with each other, beyond it they are hashed.
const FEW_MEMBERS: usize = 16;

/// A number of so few bytes has digits and an exponent in range whatever it says.
const SMALL_NUMBER_BYTES: usize = 9;

/// The same of a number without an exponent: it has no more digits than a number may have.
const PLAIN_NUMBER_BYTES: usize = 1000;

const BYTE_ORDER_MARK: char = '\u{feff}';

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(text: &str) -> String {
        read(text.as_bytes(), true, "").unwrap_err().to_string()
    }

    #[test]
    fn errors_tell_the_place() {
        assert_eq!(
            reason("{\"a\":}"),
            "not JSON at byte 5: a value is expected"
        );
        assert_eq!(
            reason("[1 2]"),
            "not JSON at byte 3: `,` or `]` is expected"
        );
        assert_eq!(reason("{\"a\" 1}"), "not JSON at byte 5: `:` is expected");
        assert_eq!(
            reason("{a:1}"),
            "not JSON at byte 1: the name of a member is expected"
        );
        assert_eq!(reason("1."), "not JSON at byte 2: a digit is expected");
        assert_eq!(reason("nul"), "not JSON at byte 0: an unknown word");
        assert_eq!(reason("truex"), "not JSON at byte 0: an unknown word");
        assert_eq!(
            reason("\"a"),
            "not JSON at byte 2: the text ends within a string"
        );
        assert_eq!(
            reason("\"a\n\""),
            "not JSON at byte 2: a control character in a text"
        );
        assert_eq!(reason("\"\\x\""), "not JSON at byte 2: an unknown escape");
        assert_eq!(
            reason("\"\\u00é\""),
            "not JSON at byte 3: four hexadecimal digits are expected"
        );
        assert_eq!(reason("1x"), "not JSON at byte 1: text behind the value");
        assert_eq!(
            reason("1e99999999999"),
            "not JSON at byte 0: number of too many digits, or out of range"
        );
        let deep = "[".repeat(100_000);
        assert_eq!(
            reason(&deep),
            "not JSON at byte 500: nested more than 500 levels deep"
        );
    }

    #[test]
    fn many_members_of_one_name_are_found_fast() {
        let members: Vec<String> = (0..20_000)
            .map(|index| format!("\"{}\":1", index % 19_999))
            .collect();
        let text = format!("{{{}}}", members.join(","));
        assert!(read(text.as_bytes(), false, "").is_err());
        let document = read(text.as_bytes(), true, "").unwrap();
        assert!(matches!(document.root, Node::Object(members) if members.len() == 19_999));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, is_lenient: bool) {
            drop(read(&bytes, is_lenient, ""));
        }

        #[test]
        fn what_serde_writes_is_read(text: String, number: f64, integer: i64) {
            let value = serde_json::json!({ "a": text, "b": [number, integer, null, true] });
            let written = value.to_string();
            let document = read(written.as_bytes(), false, "").unwrap();
            prop_assert_eq!(document.root.member("a").and_then(Node::as_text), Some(&*text));
        }
    }
}
