//! Responses to decode and acknowledgements to encode.

use anyhow::Context as _;
use bytes::Bytes;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::share_fetch::{
    AcquiredRecords, FetchedPartition, FetchedTopic, ShareFetchResponse,
};
use sharegroup_wire::record::RecordBatchBuilder;

/// The version that both sides know.
pub const VERSION: i16 = 1;

/// A ShareFetch response of one partition.
#[derive(Debug, Clone, Copy)]
pub struct Response {
    /// Records in all.
    pub records: usize,
    /// Records of each batch.
    pub batch_records: usize,
    /// Bytes of each value: random ones without a codec, JSON with one.
    pub value_bytes: usize,
    /// A key of 16 bytes and two headers each, or none.
    pub keys_and_headers: bool,
    /// Codec of the batches.
    pub codec: Compression,
}

impl Response {
    /// The base case: 256 B, no codec, no key, no header, all records in one batch.
    #[must_use]
    pub const fn of(records: usize) -> Self {
        Self {
            records,
            batch_records: records,
            value_bytes: 256,
            keys_and_headers: false,
            codec: Compression::None,
        }
    }

    /// Without the frame's size and header.
    ///
    /// # Errors
    /// None for the workloads of this crate.
    pub fn body(&self) -> anyhow::Result<Bytes> {
        let mut random = Random(7);
        let mut records = Vec::new();
        for base in (0..self.records).step_by(self.batch_records) {
            let mut batch = RecordBatchBuilder::new(self.codec);
            for offset in base..(base + self.batch_records).min(self.records) {
                let key = random.next().to_be_bytes().repeat(2);
                let value = self.value(offset, &mut random);
                let time = 1_790_000_000_000 + i64::try_from(offset)? / 7;
                let headers = [(&b"trace-id"[..], Some(&key[..8])), (b"tenant", Some(b"a"))];
                if self.keys_and_headers {
                    batch.push(time, Some(&key), Some(&value), headers)?;
                } else {
                    batch.push(time, None, Some(&value), [])?;
                }
            }
            records.extend_from_slice(&batch.build(i64::try_from(base)?)?);
        }
        let last_offset = i64::try_from(self.records)? - 1;
        let response = ShareFetchResponse {
            acquisition_lock_timeout_ms: 30_000,
            responses: vec![FetchedTopic {
                partitions: vec![FetchedPartition {
                    records: records.into(),
                    acquired_records: vec![AcquiredRecords {
                        first_offset: 0,
                        last_offset,
                        delivery_count: 1,
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        Ok(response.to_bytes(VERSION))
    }

    fn value(&self, offset: usize, random: &mut Random) -> Vec<u8> {
        if self.codec == Compression::None {
            let words = std::iter::repeat_with(|| random.next().to_be_bytes());
            return words.flatten().take(self.value_bytes).collect();
        }
        let mut value = format!(
            r#"{{"order":{offset},"customer":"customer-{}","amount":{},"currency":"EUR","items":["#,
            random.next() % 10_000,
            random.next() % 100_000,
        );
        while value.len() < self.value_bytes {
            let item = random.next() % 1_000;
            value.push_str(&format!(r#"{{"sku":"A-{item:04}","count":{}}},"#, item % 9));
        }
        value.truncate(self.value_bytes);
        value.into_bytes()
    }
}

/// Offsets to accept with one ShareFetch request.
#[derive(Debug, Clone, Copy)]
pub enum Accepted {
    /// That many, one after the other.
    Contiguous(i64),
    /// That many, every second one.
    Scattered(i64),
}

impl Accepted {
    /// First and last offset of each range.
    #[must_use]
    pub fn ranges(self) -> Vec<(i64, i64)> {
        match self {
            Self::Contiguous(count) => vec![(1_000, 999 + count)],
            Self::Scattered(count) => (0..count).map(|n| (1_000 + 2 * n, 1_000 + 2 * n)).collect(),
        }
    }
}

/// SplitMix64: the same bytes at each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The bytes that the CRCs of a response's batches cover.
///
/// # Errors
/// The body is no response.
pub fn checked_bytes(body: &Bytes) -> anyhow::Result<Vec<Bytes>> {
    let response = ShareFetchResponse::from_bytes(body, VERSION)?;
    let mut checked = Vec::new();
    for partition in response
        .responses
        .into_iter()
        .flat_map(|topic| topic.partitions)
    {
        for batch in sharegroup_wire::record::RecordBatches::new(partition.records) {
            let bytes = batch?.bytes().clone();
            // The CRC covers everything behind itself, from the attributes on.
            bytes.get(21..).context("a whole batch")?;
            checked.push(bytes.slice(21..));
        }
    }
    Ok(checked)
}

/// The compressed records of a response's batches, for measuring the codec alone.
///
/// # Errors
/// The body is no response.
pub fn compressed_records(body: &Bytes) -> anyhow::Result<Vec<Bytes>> {
    let records = 61 - 21;
    Ok(checked_bytes(body)?
        .into_iter()
        .map(|bytes| bytes.slice(records..))
        .collect())
}
