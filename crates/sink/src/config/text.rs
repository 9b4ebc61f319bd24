//! The text of a configuration file, whatever it is encoded in.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Reads a file: UTF-8, with or without a byte order mark, else ISO-8859-1 (as Java reads
/// properties). It may be a pipe, as the shell's `<(command)` is, but not endless.
///
/// # Errors
/// The second half of a sentence about the file.
pub(super) fn read(file: &Path) -> Result<String, String> {
    let unreadable = |error| format!("can't be read: {error}");
    let mut bytes = Vec::new();
    let file = File::open(file).map_err(unreadable)?;
    let mut limited = file.take(BYTES_MAX + 1);
    limited.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err("is longer than 1 MiB: that is no configuration file".to_owned());
    }
    decode(bytes)
}

/// Most bytes of a file.
const BYTES_MAX: u64 = 1 << 20;

fn decode(mut bytes: Vec<u8>) -> Result<String, String> {
    if let Some(encoding) = wide_encoding(&bytes) {
        return Err(format!("is {encoding}: save it as UTF-8"));
    }
    if bytes.starts_with(UTF_8_MARK) {
        bytes.drain(..UTF_8_MARK.len());
    }
    if bytes.contains(&0) {
        return Err("holds zero bytes: it is no text file, or no UTF-8".to_owned());
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| error.as_bytes().iter().map(|b| char::from(*b)).collect()))
}

const UTF_8_MARK: &[u8] = b"\xef\xbb\xbf";

/// By its byte order mark. That of UTF-32 begins as that of UTF-16.
fn wide_encoding(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0, 0, 0xfe, 0xff, ..] | [0xff, 0xfe, 0, 0, ..] => Some("UTF-32"),
        [0xfe, 0xff, ..] | [0xff, 0xfe, ..] => Some("UTF-16"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf_8_with_or_without_a_mark_or_else_latin_1() {
        for (bytes, text) in [
            (&b"a=\xc3\xa9"[..], "a=é"),
            (b"\xef\xbb\xbfa=1", "a=1"),
            (b"a=caf\xe9", "a=café"),
            (b"", ""),
        ] {
            assert_eq!(decode(bytes.to_vec()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn other_encodings_are_named() {
        for (bytes, says) in [
            (&b"\xff\xfea\0=\0"[..], "is UTF-16: save it as UTF-8"),
            (b"\xfe\xff\0a", "is UTF-16"),
            (b"\xff\xfe\0\0a\0\0\0", "is UTF-32"),
            (b"\0\0\xfe\xff\0\0\0a", "is UTF-32"),
            (b"a\0=\0", "zero bytes"),
        ] {
            let error = decode(bytes.to_vec()).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_file_that_does_not_end_is_refused() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert!(error.contains("1 MiB"), "{error}");
        let error = read(&std::env::temp_dir()).unwrap_err();
        assert!(error.contains("can't be read"), "{error}");
    }
}
