//! Which partition a record goes to, as Kafka's Java producer decides.

/// The partition of a key: murmur2 of its bytes, made positive, modulo the count of partitions.
/// Records of one key stay together with those of Java producers as long as the count doesn't change.
pub(super) fn partition_of_key(key: &[u8], partition_count: u32) -> u32 {
    // INVARIANT: a topic has at least one partition.
    (murmur2(key).cast_unsigned() & 0x7fff_ffff) % partition_count.max(1)
}

/// Kafka's variant of MurmurHash2: 32 bits, seed 0x9747b28c.
fn murmur2(bytes: &[u8]) -> i32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // Java takes the length as an int; keys are far below 2 GiB.
    let mut h = SEED ^ (bytes.len() as u32);
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (index, byte) in tail.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * index);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^= h >> 15;
    h.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_those_of_the_java_producer() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn partitions_stay_in_range_for_negative_hashes() {
        assert_eq!(
            partition_of_key(b"21", 10),
            ((-973_932_308_i32 & i32::MAX) % 10).cast_unsigned()
        );
        assert!((0..1000_u32).all(|key| partition_of_key(&key.to_be_bytes(), 7) < 7));
    }
}
