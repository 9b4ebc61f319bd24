//! Identifiers that must not be mixed up.

use std::fmt;

macro_rules! newtype {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

newtype! {
    /// A broker's node id. −1 means "none".
    BrokerId(i32)
}

impl BrokerId {
    /// No broker: an unknown leader.
    pub const NONE: Self = Self(-1);
}

newtype! {
    /// A member's epoch in its group: 0 joins, −1 leaves (KIP-932 "ShareGroupHeartbeat").
    MemberEpoch(i32)
}

impl MemberEpoch {
    /// Joins or rejoins.
    pub const JOIN: Self = Self(0);
    /// Leaves.
    pub const LEAVE: Self = Self(-1);
}

newtype! {
    /// A share session's epoch on one broker: 0 opens, −1 closes (KIP-932 "Share sessions").
    SessionEpoch(i32)
}

impl SessionEpoch {
    /// Opens a session.
    pub const OPEN: Self = Self(0);
    /// Closes it.
    pub const CLOSE: Self = Self(-1);

    /// The epoch of the next request: plus one, and 1 after 2³¹−1.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(next) if next > 0 => Self(next),
            _ => Self(1),
        }
    }
}

newtype! {
    /// Number that ties a response to its request on one connection.
    CorrelationId(i32)
}

/// A topic's id: 16 bytes, printed as 22 characters of URL-safe base64 as Kafka's tools do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// No topic.
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is [`TopicId::ZERO`].
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

/// 16 bytes as 22 characters of URL-safe base64 without padding: the form of topic ids and of the
/// member ids that clients make.
#[must_use]
pub fn base64_22(bytes: [u8; 16]) -> String {
    let value = u128::from_be_bytes(bytes);
    (0..22)
        .map(|i| {
            // 128 bits = 21 groups of 6 from the top, then 2 bits followed by four zero bits.
            let sextet = if i < 21 {
                (value >> (122 - 6 * i)) & 0x3f
            } else {
                (value & 0x3) << 4
            };
            base64_digit(sextet as u8)
        })
        .collect()
}

const fn base64_digit(sextet: u8) -> char {
    (match sextet {
        0..=25 => b'A' + sextet,
        26..=51 => b'a' + sextet - 26,
        52..=61 => b'0' + sextet - 52,
        62 => b'-',
        _ => b'_',
    }) as char
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64_22(self.0))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_prints_as_kafka_does() {
        let id = TopicId([
            0x9c, 0xd9, 0x02, 0x51, 0xac, 0xe5, 0x53, 0x14, 0x4a, 0x23, 0x8e, 0xb4, 0x28, 0x00,
            0x7a, 0xf5,
        ]);
        assert_eq!(id.to_string(), "nNkCUazlUxRKI460KAB69Q");
        assert_eq!(TopicId::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    }

    #[test]
    fn session_epoch_wraps_to_one() {
        assert_eq!(SessionEpoch::OPEN.next(), SessionEpoch(1));
        assert_eq!(SessionEpoch(i32::MAX).next(), SessionEpoch(1));
    }
}
