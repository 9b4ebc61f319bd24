//! Base64 as the JSON reader of the Java converter takes it: the standard alphabet, padding needed,
//! blanks between groups of four passed over.

/// The bytes of a text; `None` = malformed.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
    let mut rest = text.bytes();
    loop {
        let Some(first) = rest.by_ref().find(|byte| *byte > b' ') else {
            return Some(decoded);
        };
        let bits = u32::from(sextet(first)?) << 6 | u32::from(sextet(rest.next()?)?);
        let third = rest.next()?;
        let fourth = rest.next()?;
        if third == b'=' {
            if fourth != b'=' {
                return None;
            }
            decoded.push(low_byte(bits >> 4));
            continue;
        }
        let bits = bits << 6 | u32::from(sextet(third)?);
        if fourth == b'=' {
            decoded.extend([low_byte(bits >> 10), low_byte(bits >> 2)]);
            continue;
        }
        let bits = bits << 6 | u32::from(sextet(fourth)?);
        decoded.extend([low_byte(bits >> 16), low_byte(bits >> 8), low_byte(bits)]);
    }
}

/// The text of bytes, with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let is_padding = place > group.len();
            let sextet = bits >> (18 - 6 * place) & 0x3f;
            let c = ALPHABET.get(sextet as usize).copied().unwrap_or(b'=');
            text.push(char::from(if is_padding { b'=' } else { c }));
        }
    }
    text
}

const fn sextet(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

const fn low_byte(bits: u32) -> u8 {
    bits as u8
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn malformed_texts_are_refused() {
        for text in [
            "A", "AQ", "AQI", "AQ=", "AQ=A", "=AAA", "AQ I", "AQ-_", "ä===",
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(decode(" \nAQ==\n").unwrap(), [1]);
        assert_eq!(decode("AQI=").unwrap(), [1, 2]);
        assert_eq!(decode("").unwrap(), [0_u8; 0]);
    }

    proptest! {
        #[test]
        fn bytes_round_trip(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
