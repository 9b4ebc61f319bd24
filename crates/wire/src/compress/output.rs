//! The capped buffer that every decoder writes to.

use std::io;

use bytes::Bytes;

use super::{Compression, DecompressError, DecompressLimits};

/// A growing buffer whose capacity never passes the limits.
///
/// It starts small and doubles as bytes really arrive; a size that the peer claims is used only as
/// far as it is within a common compression ratio.
#[derive(Debug)]
pub(super) struct Output {
    bytes: Vec<u8>,
    codec: Compression,
    compressed_bytes: usize,
    /// Cap in bytes: the smaller of the two limits.
    max: usize,
    limits: DecompressLimits,
}

/// Bytes that are zeroed and filled at a time.
const STEP_BYTES: usize = 64 * 1024;

impl Output {
    pub(super) fn new(
        codec: Compression,
        compressed_bytes: usize,
        limits: &DecompressLimits,
    ) -> Self {
        let by_ratio = limits.ratio_max.map_or(usize::MAX, |ratio| {
            compressed_bytes.saturating_mul(usize::try_from(ratio).unwrap_or(usize::MAX))
        });
        let max = limits
            .decompressed_bytes_max
            .min(by_ratio)
            // Positions inside a batch are kept as u32.
            .min(usize::try_from(u32::MAX).unwrap_or(usize::MAX));
        Self {
            bytes: Vec::new(),
            codec,
            compressed_bytes,
            max,
            limits: *limits,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes until the cap.
    pub(super) fn left(&self) -> usize {
        self.max - self.bytes.len()
    }

    /// What was written since `start`.
    pub(super) fn since(&self, start: usize) -> &[u8] {
        self.bytes.get(start..).unwrap_or_default()
    }

    /// Prepares for a claimed size without believing more than 16 times the input.
    pub(super) fn expect(&mut self, claimed: u64) -> Result<(), DecompressError> {
        let believed = usize::try_from(claimed)
            .unwrap_or(usize::MAX)
            .min(self.compressed_bytes.saturating_mul(16))
            .min(self.left());
        self.reserve(believed)
    }

    /// Makes room for `more` bytes.
    ///
    /// # Errors
    /// The limit that `more` would pass, or `OutOfMemory`.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), DecompressError> {
        if more > self.left() {
            return Err(self.too_large());
        }
        if more > self.bytes.capacity() - self.bytes.len() {
            let doubled = self.bytes.capacity().saturating_mul(2);
            let wanted = doubled.max(self.bytes.len() + more).min(self.max);
            self.bytes
                .try_reserve_exact(wanted - self.bytes.len())
                .map_err(|_| DecompressError::OutOfMemory {
                    codec: self.codec,
                    bytes: wanted,
                })?;
        }
        Ok(())
    }

    /// Appends bytes.
    pub(super) fn extend(&mut self, bytes: &[u8]) -> Result<(), DecompressError> {
        self.reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends what `fill` writes into a slice of `room` zeroed bytes.
    ///
    /// `fill` also gets what was written before (for back references) and returns how many bytes
    /// it used.
    pub(super) fn append<E>(
        &mut self,
        room: usize,
        fill: impl FnOnce(&[u8], &mut [u8]) -> Result<usize, E>,
    ) -> Result<Result<usize, E>, DecompressError> {
        self.reserve(room)?;
        let start = self.bytes.len();
        self.bytes.resize(start + room, 0);
        let (before, tail) = self.bytes.split_at_mut(start);
        let used = fill(before, tail);
        self.bytes
            .truncate(start + used.as_ref().map_or(0, |used| (*used).min(room)));
        Ok(used)
    }

    /// Appends everything that a reader gives.
    pub(super) fn read_from(&mut self, reader: &mut impl io::Read) -> Result<(), DecompressError> {
        loop {
            if self.left() == 0 {
                // Full: the stream must end here.
                return match reader.read(&mut [0]) {
                    Ok(0) => Ok(()),
                    Ok(_) => Err(self.too_large()),
                    Err(error) => Err(self.corrupt(error)),
                };
            }
            let spare = self.bytes.capacity() - self.bytes.len();
            let room = if spare == 0 { STEP_BYTES } else { spare }
                .min(STEP_BYTES)
                .min(self.left());
            match self.append(room, |_, tail| reader.read(tail))? {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.corrupt(error)),
            }
        }
    }

    /// The error of the limit that is in force.
    pub(super) fn too_large(&self) -> DecompressError {
        match self.limits.ratio_max {
            Some(ratio_max) if self.max < self.limits.decompressed_bytes_max => {
                DecompressError::RatioTooHigh {
                    codec: self.codec,
                    compressed_bytes: self.compressed_bytes,
                    ratio_max,
                }
            }
            _ => DecompressError::TooLarge {
                codec: self.codec,
                compressed_bytes: self.compressed_bytes,
                limit_bytes: self.max,
            },
        }
    }

    pub(super) fn corrupt(&self, reason: impl ToString) -> DecompressError {
        DecompressError::corrupt(self.codec, reason)
    }

    /// The finished output; spare memory is given back when it is more than a quarter.
    pub(super) fn into_bytes(mut self) -> Bytes {
        if self.bytes.capacity() - self.bytes.len() > self.bytes.len() / 4 {
            self.bytes.shrink_to_fit();
        }
        Bytes::from(self.bytes)
    }
}
