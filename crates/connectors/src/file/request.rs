//! The lines of one write: rendered into a buffer that is used again and again.

use sharegroup_sink::SinkRecord;

use crate::line::Format;

/// Whole lines to be appended together, and which record each belongs to.
#[derive(Debug)]
pub(super) struct Request {
    format: Format,
    lines: Vec<u8>,
    /// For each record its offset and where its line ends in `lines`.
    ends: Vec<(i64, usize)>,
}

impl Request {
    pub(super) const fn new(format: Format) -> Self {
        Self {
            format,
            lines: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Forgets the lines; a buffer that one huge record has blown up is given back.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.lines.shrink_to(KEEP_BYTES);
        self.ends.clear();
    }

    pub(super) fn push(&mut self, record: &SinkRecord<'_>) {
        self.format.write(record, &mut self.lines);
        self.ends.push((record.offset, self.lines.len()));
    }

    /// Whether it should be written before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= FULL_BYTES
    }

    pub(super) fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// First and last offset, both included.
    pub(super) fn offsets(&self) -> Option<(i64, i64)> {
        Some((self.ends.first()?.0, self.ends.last()?.0))
    }

    /// Of the first `bytes` of the lines: offset of the last record whose line is complete, and
    /// where that line ends.
    pub(super) fn complete_within(&self, bytes: usize) -> Option<(i64, usize)> {
        let count = self.ends.partition_point(|(_, end)| *end <= bytes);
        self.ends.get(count.checked_sub(1)?).copied()
    }
}

/// Bytes after which a put is written in parts.
const FULL_BYTES: usize = 4 << 20;
/// Bytes of buffer kept between puts.
const KEEP_BYTES: usize = 8 << 20;
