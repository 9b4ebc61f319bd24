//! Base64 (RFC 4648).

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Standard alphabet, padded.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = digits(bytes, STANDARD);
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// URL-safe alphabet, not padded.
pub(super) fn encode_url(bytes: &[u8]) -> String {
    digits(bytes, URL_SAFE)
}

/// URL-safe alphabet, padded or not; `None` for anything else.
pub(super) fn decode_url(text: &str) -> Option<Vec<u8>> {
    let mut standard: Vec<u8> = text
        .trim_end_matches('=')
        .bytes()
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            // Not of this alphabet.
            b'+' | b'/' => b'.',
            other => other,
        })
        .collect();
    while !standard.len().is_multiple_of(4) {
        standard.push(b'=');
    }
    decode(&standard)
}

fn digits(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        for (byte, from) in group.iter_mut().skip(1).zip(chunk) {
            *byte = *from;
        }
        let group = u32::from_be_bytes(group);
        for index in 0..=chunk.len() {
            let sextet = (group >> (18 - 6 * index)) & 0x3f;
            text.extend(alphabet.get(sextet as usize).copied().map(char::from));
        }
    }
    text
}

/// Standard alphabet, padded; `None` for anything else. Bits that padding leaves over must be 0, so
/// that each text means something else.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let text = text.get(..text.len() - padding)?;
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text {
        bits = (bits << 6) | sextet(*byte)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

fn sextet(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        for end in 0..bytes.len() {
            let text = encode(&bytes[..end]);
            assert_eq!(
                decode(text.as_bytes()).as_deref(),
                Some(&bytes[..end]),
                "{text}"
            );
        }
        assert_eq!(encode(b"fo"), "Zm8=");
        assert_eq!(encode_url(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn illegal_text_is_refused() {
        for text in [
            "Z", "Zg", "Zg=", "Zh==", "Z===", "====", "Zm9v!", "Zm 9v", "Zg==Zg==",
        ] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
