//! Bytes that no broker should send: decoding ends in a value or a typed error, never in a panic,
//! and allocates in proportion to the bytes that are really there.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's own failures")]

mod messages;

use std::collections::BTreeSet;

use allocation_counter::measure;
use bytes::{BufMut, Bytes, BytesMut};
use messages::{Body, Kind, Vector, kinds, own_vectors, vectors};
use proptest::prelude::*;
use proptest::sample::Index;
use sharegroup_wire::DecodeError;

/// Most bytes allocated at one time, per byte of the frame. The worst list holds items of 96 bytes
/// in memory and 3 on the wire (ListGroups version 3); lists of empty strings take 24 per byte.
const ALLOCATED_PER_BYTE_MAX: u64 = 48;
/// And beside that: the message itself and the shared handle of the frame.
const ALLOCATED_FIXED_MAX: u64 = 1024;

/// Decodes and checks the bound on memory.
fn decode(kind: &Kind, version: i16, body: &Bytes) -> Result<Box<dyn Body>, DecodeError> {
    let mut result = None;
    let allocated = measure(|| result = Some((kind.decode)(body, version))).bytes_max;
    let limit = ALLOCATED_PER_BYTE_MAX * body.len() as u64 + ALLOCATED_FIXED_MAX;
    assert!(
        allocated <= limit,
        "{} version {version}: {allocated} bytes allocated for a body of {}",
        kind.name,
        body.len()
    );
    result.unwrap()
}

#[test]
fn the_allocations_of_a_decode_are_counted() {
    let names = vec![String::from("a-name-that-takes-memory"); 100];
    let allocated = measure(|| drop(names.clone())).bytes_max;
    assert!(allocated >= 100 * 24 + 100 * 24, "{allocated}");
}

#[test]
fn a_body_cut_at_any_byte_is_refused() {
    for Vector {
        kind,
        version,
        body,
        place,
        ..
    } in vectors(&own_vectors())
    {
        for cut in 0..body.len() {
            assert!(
                decode(&kind, version, &body.slice(..cut)).is_err(),
                "{place} cut at {cut}"
            );
        }
    }
}

#[test]
fn a_body_with_a_byte_too_many_is_refused() {
    for Vector {
        kind,
        version,
        body,
        place,
        ..
    } in vectors(&own_vectors())
    {
        let longer: Bytes = body.iter().copied().chain([0]).collect();
        assert_eq!(
            decode(&kind, version, &longer).err(),
            Some(DecodeError::TrailingBytes { left: 1 }),
            "{place}"
        );
    }
}

#[test]
fn tagged_fields_of_a_later_kafka_are_skipped_in_every_message() {
    let mut seen = BTreeSet::new();
    for vector in vectors(&own_vectors()) {
        // A flexible body ends with the tagged section of the message: here an empty one.
        let Some((0, rest)) = vector.body.split_last() else {
            continue;
        };
        // Tags 4242 and 4243, of 3 bytes and of none.
        let later = [rest, &[2, 0x92, 0x21, 3, 7, 7, 7, 0x93, 0x21, 0]].concat();
        let Ok(value) = decode(&vector.kind, vector.version, &later.into()) else {
            // Not flexible: the last byte was another field's.
            continue;
        };
        assert_eq!(
            value.to_bytes(vector.version),
            vector.body,
            "{}",
            vector.place
        );
        seen.insert(vector.kind.name.clone());
    }
    for name in [
        "ShareFetchResponse",
        "ShareAcknowledgeRequest",
        "ShareGroupHeartbeatResponse",
    ] {
        assert!(seen.contains(name), "{name} is not among {seen:?}");
    }
    assert!(seen.len() > 30, "{seen:?}");
}

#[test]
fn huge_counts_at_any_byte_allocate_nothing_huge() {
    const COUNTS: [&[u8]; 2] = [
        &[0xff, 0xff, 0xff, 0xff, 0x07], // 2147483646 where flexible, negative elsewhere
        &[0x7f, 0xff, 0xff, 0xff],       // 2147483647 where not flexible
    ];
    for Vector {
        kind,
        version,
        body,
        ..
    } in vectors(&own_vectors())
    {
        for at in 0..body.len() {
            for count in COUNTS {
                // Whether it decodes depends on what the bytes meant; that it ends well is the point.
                drop(decode(&kind, version, &overwritten(&body, at, count)));
            }
        }
    }
}

#[test]
fn a_flipped_bit_at_any_byte_ends_in_a_value_or_an_error() {
    for Vector {
        kind,
        version,
        body,
        ..
    } in vectors(&own_vectors())
    {
        for at in 0..body.len() {
            drop(decode(
                &kind,
                version,
                &overwritten(&body, at, &[body[at] ^ (1 << (at % 8))]),
            ));
        }
    }
}

#[test]
fn a_version_that_is_not_known_is_refused() {
    for kind in kinds() {
        for version in [
            i16::MIN,
            kind.versions.start() - 1,
            kind.versions.end() + 1,
            i16::MAX,
        ] {
            assert!(
                matches!(
                    decode(&kind, version, &Bytes::new()).err(),
                    Some(DecodeError::UnknownVersion { .. })
                ),
                "{} version {version}",
                kind.name
            );
        }
    }
}

/// The most that a peer can make of few bytes: counts that just fit, before items of the fewest bytes.
#[test]
fn counts_that_just_fit_stay_within_the_stated_multiple() {
    const TAIL_BYTES: usize = 600;
    let mut seen = std::collections::HashSet::new();
    for Vector {
        kind,
        version,
        body,
        ..
    } in vectors(&own_vectors())
    {
        // One vector with some content for each message and version.
        if body.len() < 40 || body.len() > 400 || !seen.insert((kind.name.clone(), version)) {
            continue;
        }
        for at in 0..body.len() {
            for fill in [0_u8, 1] {
                for item_bytes in [1, 3, 18] {
                    let count = u32::try_from(TAIL_BYTES / item_bytes).unwrap();
                    let mut flexible = BytesMut::from(&body[..at]);
                    sharegroup_wire::primitive::write_uvarint(count + 1, &mut flexible);
                    flexible.put_bytes(fill, TAIL_BYTES);
                    drop(decode(&kind, version, &flexible.freeze()));
                    let mut fixed = BytesMut::from(&body[..at]);
                    fixed.put_u32(count);
                    fixed.put_bytes(fill, TAIL_BYTES);
                    drop(decode(&kind, version, &fixed.freeze()));
                }
            }
        }
    }
}

fn overwritten(body: &[u8], at: usize, bytes: &[u8]) -> Bytes {
    let mut changed = body.to_vec();
    for (byte, new) in changed.iter_mut().skip(at).zip(bytes) {
        *byte = *new;
    }
    changed.into()
}

/// A change of a vector's bytes.
#[derive(Debug, Clone)]
enum Mutation {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Copies bytes from one place over another.
    Copy {
        from: Index,
        to: Index,
        bytes: usize,
    },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        1 => (any::<Index>(), prop::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        1 => (any::<Index>(), 1_usize..20).prop_map(|(at, count)| Mutation::Remove(at, count)),
        2 => (any::<Index>(), any::<Index>(), 1_usize..40)
            .prop_map(|(from, to, bytes)| Mutation::Copy { from, to, bytes }),
    ]
}

fn mutate(body: &mut Vec<u8>, mutation: &Mutation) {
    if body.is_empty() {
        return;
    }
    match mutation {
        Mutation::Set(at, byte) => *at.get_mut(body) = *byte,
        Mutation::Insert(at, bytes) => {
            let at = at.index(body.len());
            body.splice(at..at, bytes.iter().copied());
        }
        Mutation::Remove(at, count) => {
            let at = at.index(body.len());
            body.drain(at..(at + count).min(body.len()));
        }
        Mutation::Copy { from, to, bytes } => {
            let (from, to) = (from.index(body.len()), to.index(body.len()));
            let count = (*bytes).min(body.len() - from.max(to));
            body.copy_within(from..from + count, to);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// What decodes at all is a value that survives encoding, whatever bytes it came from.
    #[test]
    fn mutated_bodies_decode_to_values_that_survive_encoding(
        mutations in prop::collection::vec(mutation(), 1..6),
    ) {
        for Vector { kind, version, body, place, .. } in vectors(&own_vectors()) {
            let mut changed = body.to_vec();
            for mutation in &mutations {
                mutate(&mut changed, mutation);
            }
            let Ok(value) = decode(&kind, version, &changed.into()) else { continue };
            let bytes = value.to_bytes(version);
            let again = decode(&kind, version, &bytes);
            prop_assert!(again.is_ok(), "{}: {:?}", place, again.err());
            let again = again.unwrap();
            prop_assert_eq!(again.to_json(version), value.to_json(version), "{}", &place);
            prop_assert_eq!(again.to_bytes(version), bytes, "{}", &place);
        }
    }

    #[test]
    fn random_bytes_end_in_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let body = Bytes::from(bytes);
        for kind in kinds() {
            for version in kind.versions.clone() {
                drop(decode(&kind, version, &body));
            }
        }
    }

    /// Small numbers are counts that fit more often.
    #[test]
    fn random_small_bytes_end_in_a_value_or_an_error(bytes in prop::collection::vec(0_u8..5, 0..600)) {
        let body = Bytes::from(bytes);
        for kind in kinds() {
            for version in kind.versions.clone() {
                drop(decode(&kind, version, &body));
            }
        }
    }
}
