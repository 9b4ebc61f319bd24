//! xxHash, the checksums inside lz4 frames (32 bits) and zstd frames (64 bits), with seed 0.

const P32: [u32; 5] = [
    0x9E37_79B1,
    0x85EB_CA77,
    0xC2B2_AE3D,
    0x27D4_EB2F,
    0x1656_67B1,
];
const P64: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

/// XXH32 of `data`.
pub(super) fn xxh32(data: &[u8]) -> u32 {
    let round = |lane: u32, word: u32| {
        lane.wrapping_add(word.wrapping_mul(P32[1]))
            .rotate_left(13)
            .wrapping_mul(P32[0])
    };
    let (stripes, tail) = data.as_chunks::<16>();
    let mut hash = if stripes.is_empty() {
        P32[4]
    } else {
        let mut lanes = [
            P32[0].wrapping_add(P32[1]),
            P32[1],
            0,
            0u32.wrapping_sub(P32[0]),
        ];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<4>().0) {
                *lane = round(*lane, u32::from_le_bytes(*word));
            }
        }
        let [a, b, c, d] = lanes;
        a.rotate_left(1)
            .wrapping_add(b.rotate_left(7))
            .wrapping_add(c.rotate_left(12))
            .wrapping_add(d.rotate_left(18))
    };
    // The length counts modulo 2^32.
    #[allow(clippy::cast_possible_truncation)]
    let length = data.len() as u32;
    hash = hash.wrapping_add(length);
    let (words, bytes) = tail.as_chunks::<4>();
    for word in words {
        hash = hash
            .wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P32[2]))
            .rotate_left(17)
            .wrapping_mul(P32[3]);
    }
    for byte in bytes {
        hash = hash
            .wrapping_add(u32::from(*byte).wrapping_mul(P32[4]))
            .rotate_left(11)
            .wrapping_mul(P32[0]);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(P32[1]);
    hash = (hash ^ (hash >> 13)).wrapping_mul(P32[2]);
    hash ^ (hash >> 16)
}

/// XXH64 of `data`.
pub(super) fn xxh64(data: &[u8]) -> u64 {
    let round = |lane: u64, word: u64| {
        lane.wrapping_add(word.wrapping_mul(P64[1]))
            .rotate_left(31)
            .wrapping_mul(P64[0])
    };
    let (stripes, tail) = data.as_chunks::<32>();
    let mut hash = if stripes.is_empty() {
        P64[4]
    } else {
        let mut lanes = [
            P64[0].wrapping_add(P64[1]),
            P64[1],
            0,
            0u64.wrapping_sub(P64[0]),
        ];
        for stripe in stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
                *lane = round(*lane, u64::from_le_bytes(*word));
            }
        }
        let [a, b, c, d] = lanes;
        let mixed = a
            .rotate_left(1)
            .wrapping_add(b.rotate_left(7))
            .wrapping_add(c.rotate_left(12))
            .wrapping_add(d.rotate_left(18));
        lanes.into_iter().fold(mixed, |hash, lane| {
            (hash ^ round(0, lane))
                .wrapping_mul(P64[0])
                .wrapping_add(P64[3])
        })
    };
    hash = hash.wrapping_add(data.len() as u64);
    let (words, rest) = tail.as_chunks::<8>();
    for word in words {
        hash = (hash ^ round(0, u64::from_le_bytes(*word)))
            .rotate_left(27)
            .wrapping_mul(P64[0])
            .wrapping_add(P64[3]);
    }
    let (words, bytes) = rest.as_chunks::<4>();
    for word in words {
        hash = (hash ^ u64::from(u32::from_le_bytes(*word)).wrapping_mul(P64[0]))
            .rotate_left(23)
            .wrapping_mul(P64[1])
            .wrapping_add(P64[2]);
    }
    for byte in bytes {
        hash = (hash ^ u64::from(*byte).wrapping_mul(P64[4]))
            .rotate_left(11)
            .wrapping_mul(P64[0]);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(P64[1]);
    hash = (hash ^ (hash >> 29)).wrapping_mul(P64[2]);
    hash ^ (hash >> 32)
}
