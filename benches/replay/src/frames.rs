//! Responses that are made once and patched in place: their offsets and correlation ids.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use sharegroup_wire::compress::Compression;
use sharegroup_wire::frame::encode_response;
use sharegroup_wire::id::{CorrelationId, TopicId};
use sharegroup_wire::message::share_fetch::{
    AcquiredRecords, FetchedPartition, FetchedTopic, ShareFetchRequest, ShareFetchResponse,
};
use sharegroup_wire::record::RecordBatchBuilder;

/// Partitions of the topic.
pub(crate) const PARTITIONS: i32 = 4;
pub(crate) const TOPIC: TopicId = TopicId([7; 16]);
pub(crate) const LOCK_MS: i32 = 30_000;
/// What a producer puts into a batch by default.
const BATCH_BYTES: usize = 16 << 10;
/// Marks where the acquired range stands.
const MARK: i64 = 0x1122_3344_5566_7788;

/// A response frame with so many batches of one partition.
pub(crate) struct Frame {
    pub(crate) bytes: Vec<u8>,
    /// Where the batches' base offsets stand.
    batches: Vec<usize>,
    /// Where first and last acquired offset stand.
    acquired: usize,
    records_per_batch: i64,
}

impl Frame {
    /// How many records it brings.
    pub(crate) fn records(&self) -> i64 {
        self.records_per_batch * self.batches.len() as i64
    }

    /// Makes it the answer to a request, from an offset on. Base offsets are covered by no checksum.
    pub(crate) fn patch(&mut self, correlation: CorrelationId, offset: i64) {
        let last = offset + self.records() - 1;
        put(&mut self.bytes, 4, &correlation.0.to_be_bytes());
        put(&mut self.bytes, self.acquired, &offset.to_be_bytes());
        put(&mut self.bytes, self.acquired + 8, &last.to_be_bytes());
        for (at, base) in self
            .batches
            .iter()
            .zip((offset..).step_by(self.records_per_batch as usize))
        {
            put(&mut self.bytes, *at, &base.to_be_bytes());
        }
    }
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    bytes[at..at + new.len()].copy_from_slice(new);
}

/// Frames by partition and number of batches.
pub(crate) struct Frames {
    version: i16,
    batch: Bytes,
    records_per_batch: usize,
    made: Vec<(i32, usize, Frame)>,
}

impl Frames {
    pub(crate) fn new(version: i16, value_bytes: usize) -> anyhow::Result<Self> {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        let mut value = vec![0; value_bytes];
        let mut state = 88_172_645_463_325_252_u64;
        while builder.size_bytes() + value_bytes + 16 <= BATCH_BYTES || builder.is_empty() {
            for byte in &mut value {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = (state >> 40) as u8;
            }
            builder.push(1_700_000_000_000, Some(&value[..8]), Some(&value), [])?;
        }
        Ok(Self {
            version,
            batch: builder.build(0)?,
            records_per_batch: builder.len(),
            made: Vec::new(),
        })
    }

    /// Whole batches until so many records are there, as a broker takes them; few different numbers of
    /// batches, so that few frames are made.
    pub(crate) fn frame(&mut self, partition: i32, records_max: i32) -> anyhow::Result<&mut Frame> {
        let wanted = usize::try_from(records_max)?
            .div_ceil(self.records_per_batch)
            .max(1);
        // 500 and 5,000 a poll get what they ask for, what lies between a power of two.
        let exact = [500_usize, 5000].map(|poll| poll.div_ceil(self.records_per_batch));
        let batches = if exact.contains(&wanted) {
            wanted
        } else {
            (1 << wanted.ilog2()).min(exact[1])
        };
        let known = self
            .made
            .iter()
            .position(|made| (made.0, made.1) == (partition, batches));
        let index = match known {
            Some(index) => index,
            None => {
                let frame = self.make(partition, batches)?;
                self.made.push((partition, batches, frame));
                self.made.len() - 1
            }
        };
        Ok(&mut self.made[index].2)
    }

    /// The partition with data stands first; the others are there for their acknowledgements.
    fn make(&self, partition: i32, batches: usize) -> anyhow::Result<Frame> {
        let with_data = FetchedPartition {
            partition_index: partition,
            records: self.batch.repeat(batches).into(),
            acquired_records: vec![AcquiredRecords {
                first_offset: MARK,
                last_offset: MARK,
                delivery_count: 1,
            }],
            ..Default::default()
        };
        let bytes = encode_response::<ShareFetchRequest>(
            &response(Some(with_data)),
            self.version,
            CorrelationId(0),
        )
        .to_vec();
        let start = find(&bytes, &self.batch)?;
        let batch_bytes = self.batch.len();
        let end = start + batches * batch_bytes;
        ensure!(bytes.len() > end + 18, "no room for the acquired range");
        let acquired = end + find(&bytes[end..], &MARK.to_be_bytes())?;
        Ok(Frame {
            batches: (start..end).step_by(batch_bytes).collect(),
            acquired,
            records_per_batch: self.records_per_batch as i64,
            bytes,
        })
    }
}

/// A response that names every partition, so that it confirms acknowledgements of all.
pub(crate) fn response(with_data: Option<FetchedPartition>) -> ShareFetchResponse {
    let first = with_data
        .as_ref()
        .map(|partition| partition.partition_index);
    let others = (0..PARTITIONS)
        .filter(|partition| Some(*partition) != first)
        .map(|partition_index| FetchedPartition {
            partition_index,
            ..Default::default()
        });
    ShareFetchResponse {
        acquisition_lock_timeout_ms: LOCK_MS,
        responses: vec![FetchedTopic {
            topic_id: TOPIC,
            partitions: with_data.into_iter().chain(others).collect(),
        }],
        ..Default::default()
    }
}

fn find(bytes: &[u8], part: &[u8]) -> anyhow::Result<usize> {
    let found = bytes.windows(part.len()).position(|window| window == part);
    found.context("a frame without what was put into it")
}
