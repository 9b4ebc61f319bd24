//! Limits of decompression.

/// What the decompression of one batch may cost.
///
/// The cap is on the output. Beside it zstd holds back-reference data while it decodes: at most the
/// window that a frame declares, never more than 128 MiB (zstd's own ceiling), and about as much as
/// the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecompressLimits {
    /// Largest decompressed size of one batch, in bytes. Values above 4 GiB − 1 count as that.
    ///
    /// The default is 128 MiB: more than the 100 MiB that a broker accepts in a request
    /// (`socket.request.max.bytes`), so that any batch that was once produced without compression
    /// or with a buffer of that size passes, also 200 × 500 KB of one character, and little
    /// enough that a worker survives a bomb.
    pub decompressed_bytes_max: usize,
    /// Most times that the output may exceed the input; `None`, the default, sets no bound.
    ///
    /// A ratio does not tell an honest batch from a bomb: zstd writes 100 MB of one character in
    /// a few kilobytes, as dense as a bomb can be. It is here for those who know their data.
    pub ratio_max: Option<u32>,
}

impl DecompressLimits {
    /// The default limits.
    pub const DEFAULT: Self = Self {
        decompressed_bytes_max: Self::DECOMPRESSED_BYTES_MAX,
        ratio_max: None,
    };

    /// Default of [`decompressed_bytes_max`](Self::decompressed_bytes_max): 128 MiB.
    pub const DECOMPRESSED_BYTES_MAX: usize = crate::limits::DECOMPRESSED_BYTES_MAX;

    /// Limits with another cap on the decompressed size, in bytes.
    #[must_use]
    pub const fn with_decompressed_bytes_max(mut self, bytes: usize) -> Self {
        self.decompressed_bytes_max = bytes;
        self
    }

    /// Limits with a bound on output ÷ input.
    #[must_use]
    pub const fn with_ratio_max(mut self, ratio: Option<u32>) -> Self {
        self.ratio_max = ratio;
        self
    }
}

impl Default for DecompressLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
