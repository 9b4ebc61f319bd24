//! PEM (RFC 7468), as Kafka's Java clients read it: text around the blocks is skipped, and inside
//! of properties, where lines are joined, blanks may stand for their ends.

use crate::net::base64;

/// One block.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Block<'a> {
    /// `CERTIFICATE`, `PRIVATE KEY` and others.
    pub(super) label: &'a str,
    pub(super) contents: Vec<u8>,
    /// Whether it starts with header fields (RFC 1421): a key in OpenSSL's own encryption.
    pub(super) has_headers: bool,
}

const BEGIN: &str = "-----BEGIN ";

pub(super) fn is_pem(text: &str) -> bool {
    text.contains(BEGIN)
}

/// All blocks, in order.
///
/// # Errors
/// What is wrong, without any of the contents.
pub(super) fn blocks(text: &str) -> Result<Vec<Block<'_>>, String> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let (label, after) = after
            .split_once("-----")
            .filter(|(label, _)| label.len() <= 64 && !label.contains('\n'))
            .ok_or("-----BEGIN without a label and -----")?;
        let (body, after) = after
            .split_once(&format!("-----END {label}-----"))
            .ok_or_else(|| format!("-----BEGIN {label}----- without -----END {label}-----"))?;
        let has_headers = body.contains(':');
        let contents = if has_headers {
            Vec::new()
        } else {
            let digits: Vec<u8> = body
                .bytes()
                .filter(|byte| !byte.is_ascii_whitespace())
                .collect();
            base64::decode(&digits)
                .ok_or_else(|| format!("the block {label} is not base64 between its lines"))?
        };
        blocks.push(Block {
            label,
            contents,
            has_headers,
        });
        rest = after;
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".*", framed in "(-----(BEGIN|END) [A-Z ]{0,3}-----[a-zA-Z=:\\n ]{0,9}){0,4}") {
            drop(blocks(&text));
            drop(blocks(&framed));
        }
    }

    #[test]
    fn blocks_are_found_between_other_text_and_on_one_line() {
        let text = "subject=x\r\n-----BEGIN CERTIFICATE-----\r\nZm9v\r\nYmFy\r\n-----END CERTIFICATE-----\r\n\
                    -----BEGIN PRIVATE KEY----- Zm 8= -----END PRIVATE KEY-----";
        let blocks = blocks(text).unwrap();
        let found: Vec<_> = blocks
            .iter()
            .map(|block| (block.label, block.contents.as_slice()))
            .collect();
        assert_eq!(
            found,
            [("CERTIFICATE", &b"foobar"[..]), ("PRIVATE KEY", b"fo")]
        );
    }

    #[test]
    fn damage_is_named_without_contents() {
        for (text, expected) in [
            ("-----BEGIN X-----\nZm9v", "without -----END X-----"),
            ("-----BEGIN X-----\nsecret!\n-----END X-----", "not base64"),
            ("-----BEGIN X\nZm9v-----", "without a label"),
        ] {
            let error = blocks(text).err().unwrap();
            assert!(
                error.contains(expected) && !error.contains("secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn header_fields_are_noticed() {
        let text = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nZm9v\n-----END RSA PRIVATE KEY-----";
        assert!(blocks(text).unwrap()[0].has_headers);
    }
}
