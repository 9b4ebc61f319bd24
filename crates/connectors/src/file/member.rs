//! Compressed parts of a file, and the marks that tell where they end.
//!
//! Each append is a gzip member, or a frame of lz4 or zstd, of its own: files of several are legal, and tools read
//! them as one. Behind each stands a mark, a member without content whose extra field (gzip, RFC 1952) or a
//! skippable frame whose content (lz4, zstd) says at which byte of the file it stands. A file that was left in the
//! middle of an append doesn't end with one, and its last whole part ends where the last true mark does.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use sharegroup_wire::compress::{Compression, compress};

/// Bytes to be appended.
#[derive(Debug)]
pub(super) enum Part<'a> {
    /// Lines as they are.
    Lines(&'a [u8]),
    /// Compressed: so many bytes, and a place for their mark.
    Member(Compression, Vec<u8>, usize),
}

impl<'a> Part<'a> {
    pub(super) fn new(codec: Compression, lines: &'a [u8]) -> io::Result<Self> {
        if codec == Compression::None {
            return Ok(Self::Lines(lines));
        }
        let mut member = compress(codec, lines).map_err(io::Error::other)?;
        let bytes = member.len();
        member.extend(mark(codec, 0));
        Ok(Self::Member(codec, member, bytes))
    }

    /// Its bytes where it begins at this byte of the file.
    pub(super) fn at(&mut self, start: u64) -> &[u8] {
        match self {
            Self::Lines(lines) => lines,
            Self::Member(codec, member, bytes) => {
                member.truncate(*bytes);
                member.extend(mark(*codec, start + *bytes as u64));
                member
            }
        }
    }

    /// How many bytes that are.
    pub(super) const fn len(&self) -> u64 {
        match self {
            Self::Lines(lines) => lines.len() as u64,
            Self::Member(_, member, _) => member.len() as u64,
        }
    }
}

/// The mark that stands at this byte of a file.
fn mark(codec: Compression, at: u64) -> Vec<u8> {
    let mut mark = prefix(codec).to_vec();
    mark.extend(at.to_le_bytes());
    if codec == Compression::Gzip {
        mark.extend(GZIP_NOTHING);
    }
    mark
}

const fn prefix(codec: Compression) -> &'static [u8] {
    match codec {
        Compression::Gzip => GZIP_HEADER,
        Compression::Lz4 => LZ4_SKIPPABLE,
        _ => ZSTD_SKIPPABLE,
    }
}

/// Whether what stands at this byte of a file can be half a part: it begins as one does, as far as it goes.
pub(super) fn is_half_a_part(file: &File, codec: Compression, at: u64) -> io::Result<bool> {
    let begins = begin(file, at)?;
    let magic = magic(codec);
    Ok(begins.starts_with(magic) || magic.starts_with(&begins))
}

/// Whether a file begins as one that was compressed, here or elsewhere.
pub(super) fn is_compressed(file: &File) -> io::Result<bool> {
    let begins = begin(file, 0)?;
    let codecs = [Compression::Gzip, Compression::Lz4, Compression::Zstd];
    Ok(codecs
        .into_iter()
        .any(|codec| begins.starts_with(magic(codec))))
}

/// The first bytes from here on, as many as any magic has.
fn begin(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = [0; MAGIC_BYTES_MAX];
    let count = file.read_at(&mut bytes, at)?;
    Ok(bytes.iter().take(count).copied().collect())
}

/// What a member or a frame with content begins with.
pub(super) const fn magic(codec: Compression) -> &'static [u8] {
    match codec {
        Compression::Gzip => &[0x1f, 0x8b, 8],
        Compression::Lz4 => &[0x04, 0x22, 0x4d, 0x18],
        Compression::Zstd => &[0x28, 0xb5, 0x2f, 0xfd],
        _ => &[],
    }
}

/// Where the last whole part of a file of this length ends: its length where it ends with a mark. `None` where
/// there is no mark within the last [`SEARCH_BYTES`]: the file isn't ours, or was left in its first part.
pub(super) fn last_end(file: &File, codec: Compression, length: u64) -> io::Result<Option<u64>> {
    let mark_bytes = mark(codec, 0).len() as u64;
    let mut end = length;
    while end >= mark_bytes && length - end < SEARCH_BYTES {
        // The first look is at the very end.
        let step = if end == length {
            mark_bytes
        } else {
            STEP_BYTES
        };
        let start = end.saturating_sub(step);
        let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
        file.read_exact_at(&mut bytes, start)?;
        if let Some(at) = last_mark(codec, &bytes, start) {
            return Ok(Some(at + mark_bytes));
        }
        if start == 0 {
            break;
        }
        // A mark may lie across two looks.
        end = start + mark_bytes - 1;
    }
    Ok(None)
}

/// Where in the file the last mark of these bytes stands, which begin at `start`.
fn last_mark(codec: Compression, bytes: &[u8], start: u64) -> Option<u64> {
    let prefix = prefix(codec);
    let candidates = bytes.windows(prefix.len()).enumerate().rev();
    let mut candidates = candidates.filter(|(_, window)| *window == prefix);
    candidates.find_map(|(index, _)| {
        let at = start + index as u64;
        let is_mark = bytes.get(index..)?.starts_with(&mark(codec, at));
        is_mark.then_some(at)
    })
}

/// Deflate with an extra field of 12 bytes: the subfield `SG` of 8.
const GZIP_HEADER: &[u8] = &[
    0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 12, 0, b'S', b'G', 8, 0,
];
/// An empty last block, the checksum of nothing, and its size.
const GZIP_NOTHING: [u8; 10] = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// Skippable frames of 12 bytes; no codec takes the other's for its own.
const LZ4_SKIPPABLE: &[u8] = &[0x5e, 0x2a, 0x4d, 0x18, 12, 0, 0, 0, b'S', b'G', b'L', b'4'];
const ZSTD_SKIPPABLE: &[u8] = &[0x5e, 0x2a, 0x4d, 0x18, 12, 0, 0, 0, b'S', b'G', b'Z', b'S'];
/// Of all [`magic`]s.
const MAGIC_BYTES_MAX: usize = 4;
/// Read at once.
const STEP_BYTES: u64 = 1 << 20;
/// More than any part has: one is a put's lines, and a record fits a broker's answer.
const SEARCH_BYTES: u64 = 256 << 20;
