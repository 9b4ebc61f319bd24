//! Texts of peers, fit for a terminal and a log line.

use crate::limits::PEER_TEXT_CHARACTERS_MAX;

/// What is visible of a peer's text, at most [`PEER_TEXT_CHARACTERS_MAX`] characters: without control
/// characters, which move a terminal's cursor, and without format characters, which turn the direction
/// of writing around or hide.
#[must_use]
pub fn visible(text: &str) -> String {
    text.chars()
        .filter(|character| is_visible(*character))
        .take(PEER_TEXT_CHARACTERS_MAX)
        .collect()
}

/// Whether a character neither controls nor hides: not of the categories Cc, Cf, Zl and Zp (Unicode 16).
#[must_use]
pub fn is_visible(character: char) -> bool {
    !character.is_control()
        && !matches!(u32::from(character),
            0x00ad | 0x0600..=0x0605 | 0x061c | 0x06dd | 0x070f | 0x0890..=0x0891 | 0x08e2 | 0x180e
            | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x2064 | 0x2066..=0x206f | 0xfeff
            | 0xfff9..=0xfffb | 0x110bd | 0x110cd | 0x13430..=0x1343f | 0x1bca0..=0x1bca3
            | 0x1d173..=0x1d17a | 0xe0001 | 0xe0020..=0xe007f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_a_terminal_or_hides_is_left_out() {
        let text = "\u{1b}[2Ja\u{202e}b\u{200b}c\u{feff}\u{2066}d\u{e0041}\u{7f}\u{9b}\n\u{2028}e";
        assert_eq!(visible(text), "[2Jabcde");
        assert_eq!(
            visible("Zugriff verweigert: größe 5 €, 拒絶"),
            "Zugriff verweigert: größe 5 €, 拒絶"
        );
        assert_eq!(visible(&"x".repeat(1000)).len(), PEER_TEXT_CHARACTERS_MAX);
    }
}
