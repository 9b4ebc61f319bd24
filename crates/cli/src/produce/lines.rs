//! Lines as records.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use sharegroup_sink::config::nearest;
use tokio::sync::mpsc;

use crate::consume::unescape;
use crate::exit::Problems;

/// How a line is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineFormat {
    parse_key: bool,
    key_separator: Vec<u8>,
    ignore_error: bool,
    null_marker: Option<Vec<u8>>,
    /// Longest line in bytes.
    pub(super) bytes_max: usize,
}

/// A record's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
}

const KNOWN: [&str; 4] = ["parse.key", "key.separator", "ignore.error", "null.marker"];
/// Properties of Kafka's reader that this one lacks.
const MISSING: [&str; 4] = [
    "parse.headers",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
];

impl LineFormat {
    /// Of `--key-separator` and properties, later ones counting.
    pub(super) fn parse(
        key_separator: Option<&str>,
        properties: &[(String, String)],
        bytes_max: usize,
        problems: &mut Problems,
    ) -> Self {
        let mut format = Self {
            parse_key: false,
            key_separator: b"\t".to_vec(),
            ignore_error: false,
            null_marker: None,
            bytes_max,
        };
        for (key, value) in properties {
            format.set(key, value, problems);
        }
        if let Some(separator) = key_separator {
            format.parse_key = true;
            format.key_separator = unescape(separator).into_bytes();
        }
        if format.key_separator.is_empty() {
            problems
                .errors
                .push("the key separator is empty".to_owned());
        }
        format
    }

    fn set(&mut self, key: &str, value: &str, problems: &mut Problems) {
        let flag = match key {
            "parse.key" => &mut self.parse_key,
            "ignore.error" => &mut self.ignore_error,
            "key.separator" => return self.key_separator = unescape(value).into_bytes(),
            "null.marker" => return self.null_marker = Some(value.as_bytes().to_vec()),
            "parse.headers" if value.trim().eq_ignore_ascii_case("false") => return,
            missing if MISSING.contains(&missing) => {
                return problems
                    .errors
                    .push(format!("{key}: headers can't be read from lines yet"));
            }
            unknown => {
                let known = KNOWN
                    .iter()
                    .chain(&MISSING)
                    .map(|name| Cow::Borrowed(*name));
                return match nearest(unknown, known) {
                    Some(right) => problems
                        .errors
                        .push(format!("{key}: is not a property; did you mean {right}?")),
                    None => problems
                        .warnings
                        .push(format!("{key}: is not a property; it has no effect")),
                };
            }
        };
        match value.trim().to_ascii_lowercase().as_str() {
            "true" => *flag = true,
            "false" => *flag = false,
            _ => problems
                .errors
                .push(format!("{key}={value}: must be true or false")),
        }
    }

    /// Splits a line, without its end.
    fn split(&self, number: u64, line: Bytes) -> Result<Line, String> {
        if !self.parse_key {
            return Ok(Line {
                key: None,
                value: self.or_null(line),
            });
        }
        let separator = &self.key_separator;
        let at = line
            .windows(separator.len())
            .position(|window| window == separator);
        match at {
            Some(at) => Ok(Line {
                key: self.or_null(line.slice(..at)),
                value: self.or_null(line.slice(at + separator.len()..)),
            }),
            None if self.ignore_error => Ok(Line {
                key: None,
                value: self.or_null(line),
            }),
            None => Err(format!(
                "line {number} has no key separator {:?}; --property ignore.error=true takes such a line as a value without key",
                String::from_utf8_lossy(separator)
            )),
        }
    }

    fn or_null(&self, text: Bytes) -> Option<Bytes> {
        Some(text).filter(|text| self.null_marker.as_deref() != Some(&**text))
    }
}

/// Lines that go to the sender in one piece, and why there are no more if that is an error.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) lines: Vec<Line>,
    pub(super) error: Option<String>,
}

const CHUNK_LINES: usize = 1_000;
const CHUNK_BYTES: usize = 256 * 1024;
/// Chunks read ahead.
const CHUNKS_AHEAD: usize = 4;

/// Reads a file, or standard input, on a thread of its own. At most a few chunks are read ahead.
pub(super) fn read(file: Option<&Path>, format: LineFormat) -> io::Result<mpsc::Receiver<Chunk>> {
    let input: Box<dyn Read + Send> = match file {
        Some(file) => Box::new(std::fs::File::open(file)?),
        None => Box::new(io::stdin()),
    };
    let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
    std::thread::Builder::new()
        .name("lines".to_owned())
        .spawn(move || {
            read_all(
                BufReader::with_capacity(CHUNK_BYTES, input),
                &format,
                &sender,
            )
        })?;
    Ok(chunks)
}

fn read_all(mut input: BufReader<impl Read>, format: &LineFormat, sender: &mpsc::Sender<Chunk>) {
    let mut number = 0;
    loop {
        let chunk = read_chunk(&mut input, format, &mut number);
        let is_last = chunk.error.is_some() || chunk.lines.is_empty();
        if sender.blocking_send(chunk).is_err() || is_last {
            return;
        }
    }
}

/// The next lines; none at the end. Ends early where more would have to be waited for.
fn read_chunk(input: &mut BufReader<impl Read>, format: &LineFormat, number: &mut u64) -> Chunk {
    let mut chunk = Chunk::default();
    let mut bytes = 0;
    while chunk.lines.len() < CHUNK_LINES && bytes < CHUNK_BYTES {
        match read_line(input, format, number) {
            Ok(None) => break,
            Ok(Some((line, length))) => {
                chunk.lines.push(line);
                bytes += length;
            }
            Err(error) => {
                chunk.error = Some(error);
                break;
            }
        }
        if input.buffer().is_empty() {
            break;
        }
    }
    chunk
}

/// One line with its length; `None` at the end.
fn read_line(
    input: &mut BufReader<impl Read>,
    format: &LineFormat,
    number: &mut u64,
) -> Result<Option<(Line, usize)>, String> {
    let mut line = Vec::new();
    // With room for the end of the line.
    let mut limited = input.take(format.bytes_max as u64 + 2);
    let read = limited.read_until(b'\n', &mut line);
    if read.map_err(|error| format!("line {}: {error}", *number + 1))? == 0 {
        return Ok(None);
    }
    *number += 1;
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    let length = line.len();
    if length > format.bytes_max {
        return Err(format!(
            "line {number} is longer than max.request.size = {} bytes",
            format.bytes_max
        ));
    }
    Ok(Some((format.split(*number, Bytes::from(line))?, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(key_separator: Option<&str>, properties: &[(&str, &str)]) -> (LineFormat, Problems) {
        let mut problems = Problems {
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        let properties: Vec<_> = properties
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let format = LineFormat::parse(key_separator, &properties, 10, &mut problems);
        (format, problems)
    }

    type Pair = (Option<String>, Option<String>);

    fn lines(format: &LineFormat, text: &str) -> Result<Vec<Pair>, String> {
        let (mut all, mut number) = (Vec::new(), 0);
        let mut input = BufReader::with_capacity(4, text.as_bytes());
        let text =
            |bytes: Option<Bytes>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        loop {
            let chunk = read_chunk(&mut input, format, &mut number);
            if let Some(error) = chunk.error {
                return Err(error);
            }
            if chunk.lines.is_empty() {
                return Ok(all);
            }
            all.extend(
                chunk
                    .lines
                    .into_iter()
                    .map(|line| (text(line.key), text(line.value))),
            );
        }
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn each_line_is_a_value_without_its_end() {
        let (format, _) = parse(None, &[]);
        let expected = [(None, some("a\tb")), (None, some("")), (None, some("c"))];
        assert_eq!(lines(&format, "a\tb\r\n\nc").unwrap(), expected);
        assert_eq!(lines(&format, "").unwrap(), []);
    }

    #[test]
    fn keys_stand_before_the_first_separator() {
        let (format, _) = parse(Some("::"), &[("null.marker", "NIL")]);
        let expected = [
            (some("k"), some("v::w")),
            (some(""), some("")),
            (some("k"), None),
        ];
        assert_eq!(lines(&format, "k::v::w\n::\nk::NIL\n").unwrap(), expected);
        let (same, _) = parse(None, &[("parse.key", "true"), ("key.separator", r"\t")]);
        assert_eq!(lines(&same, "k\tv").unwrap(), [(some("k"), some("v"))]);
    }

    #[test]
    fn a_line_without_a_key_names_its_number() {
        let (format, _) = parse(Some(","), &[]);
        let error = lines(&format, "a,b\nc\n").unwrap_err();
        assert!(error.contains("line 2"), "{error}");
        let (lenient, _) = parse(Some(","), &[("ignore.error", "true")]);
        let expected = [(some("a"), some("b")), (None, some("c"))];
        assert_eq!(lines(&lenient, "a,b\nc\n").unwrap(), expected);
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_before_it_is_in_memory() {
        let (format, _) = parse(None, &[]);
        assert!(lines(&format, "1234567890\n1234567890\r\n").is_ok());
        let error = lines(&format, "ok\n12345678901\n").unwrap_err();
        assert!(
            error.contains("line 2") && error.contains("max.request.size"),
            "{error}"
        );
    }

    #[test]
    fn misspelt_properties_are_errors() {
        let (_, problems) = parse(
            None,
            &[
                ("parse.keys", "true"),
                ("parse.headers", "true"),
                ("x", "1"),
            ],
        );
        assert!(problems.errors[0].contains("parse.key?"), "{problems:?}");
        assert!(problems.errors[1].contains("yet"), "{problems:?}");
        assert_eq!((problems.errors.len(), problems.warnings.len()), (2, 1));
    }
}
