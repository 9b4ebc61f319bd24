//! What the benches decode and encode, by this project and by `kafka-protocol` 0.18 on the same bytes.

pub mod ours;
pub mod peer;
pub mod workload;

/// What reading a response comes to: every key, value, timestamp and header is located, and its
/// length, first and last byte are folded in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checksum {
    sum: u64,
    /// Records read.
    pub records: u64,
}

impl Checksum {
    fn number(&mut self, number: u64) {
        self.sum = self.sum.rotate_left(5).wrapping_add(number);
    }

    fn bytes(&mut self, bytes: Option<&[u8]>) {
        let folded = match bytes {
            None => u64::MAX,
            Some([]) => 0,
            Some(bytes @ [first, .., last]) => {
                (bytes.len() as u64) << 16 | u64::from(*first) << 8 | u64::from(*last)
            }
            Some([only]) => 1 << 16 | u64::from(*only) << 8 | u64::from(*only),
        };
        self.number(folded);
    }

    fn record(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.records += 1;
        self.number(timestamp.cast_unsigned());
        self.bytes(key);
        self.bytes(value);
    }

    fn header(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.bytes(Some(key));
        self.bytes(value);
    }
}
