//! The folder that a cluster's state lives in ([`BrokerBuilder::dir`](super::BrokerBuilder::dir)).
//!
//! ```text
//! lock          held by the process that uses the folder
//! journal       what happened, and nothing else
//! journal.new   a journal that is being made; it counts from its renaming on
//! ```
//!
//! A journal is the magic, the format's version, and blocks: what one step of the model changed, whole
//! or not at all.
//!
//! ```text
//! block: length (u32) · CRC-32C of the entries (u32) · entries (length bytes)
//! ```
//!
//! Blocks are handed to the operating system before any answer that depends on them goes out. They are
//! not forced to the disk, as Kafka doesn't by default: what was acknowledged survives the end of the
//! process in any way, but not of the machine.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::model::Model;
use crate::model::journal::Entry;

const MAGIC: [u8; 8] = *b"sgbroker";
/// The format that is written, and the latest that is read.
const FORMAT: u32 = 1;
const BLOCK_HEADER_BYTES: usize = 8;
/// A journal that is smaller than this is left as it is.
const COMPACT_BYTES_MIN: u64 = 4 * 1024 * 1024;
/// A journal that is so many times the logs' size is made anew.
const COMPACT_FACTOR: u64 = 3;
/// Bytes of a block of a snapshot, about.
const SNAPSHOT_BLOCK_BYTES: usize = 1024 * 1024;

/// Why a folder can't be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It can't be made, read or written.
    #[error("{what} {}", path.display())]
    Io {
        /// What failed.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another broker uses it: stop that one, or take another folder.
    #[error("folder {} is in use by another broker", .0.display())]
    InUse(PathBuf),
    /// A later version of the program wrote it: use that one, or take another folder.
    #[error("{} has format {found}, this program knows formats up to {FORMAT}", path.display())]
    Format {
        /// The journal.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The file is no journal, or one that is damaged in a way that no crash explains.
    #[error("{} can't be understood at byte {position}: {why}", path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Where.
        position: u64,
        /// Why.
        why: String,
    },
}

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
    journal: File,
    /// Length of the journal up to the last whole block.
    written: u64,
    /// Blocks that are still to be written.
    pending: BytesMut,
    /// Whether the last attempt failed.
    is_failing: bool,
    /// Length from which on the journal may be made anew.
    compact_at: u64,
}

impl Folder {
    /// Opens a folder, or makes it, and brings the model to where its journal ends. From then on the
    /// model keeps its journal; [`begin`](Self::begin) comes next.
    pub(super) fn open(path: &Path, model: &mut Model, now: Instant) -> Result<Self, FolderError> {
        fs::create_dir_all(path).map_err(io_error("can't make the folder", path))?;
        let lock = lock(path)?;
        let aside = path.join("journal.new");
        match fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("can't remove", &aside)(error));
            }
            _ => {}
        }
        let journal_path = path.join("journal");
        if !journal_path.exists() {
            write_snapshot(path, model).map_err(io_error("can't write", &journal_path))?;
        }
        let journal = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&journal_path)
            .map_err(io_error("can't open", &journal_path))?;
        let written = Recovery::new(&journal, &journal_path)?.run(model)?;
        model.keep_journal();
        model.finish_restore(now);
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            journal,
            written,
            pending: BytesMut::new(),
            is_failing: false,
            compact_at: COMPACT_BYTES_MIN,
        })
    }

    /// Before the cluster starts: writes what the start has changed.
    pub(super) fn begin(&mut self, model: &mut Model) -> Result<(), FolderError> {
        self.take(model);
        let written = self.flush();
        written.map_err(io_error("can't write to the folder", &self.path))
    }

    /// Before the model does anything: what could not be written before is tried again.
    pub(super) fn retry(&mut self, model: &mut Model) {
        if self.is_failing && self.flush().is_ok() {
            tracing::info!(folder = %self.path.display(), "The folder can be written again.");
            self.is_failing = false;
            model.storage_is_back();
        }
    }

    /// Before anything that the model says goes out: writes what it has noted. Where that fails,
    /// nobody is told anything but the failure.
    pub(super) fn write(&mut self, model: &mut Model, now: Instant) {
        self.take(model);
        if self.pending.is_empty() {
            return;
        }
        match self.flush() {
            Ok(()) => self.compact(model),
            Err(error) => {
                if !self.is_failing {
                    tracing::error!(
                        folder = %self.path.display(), %error,
                        "The folder can't be written: requests are refused until it can."
                    );
                }
                self.is_failing = true;
                model.refuse_outputs(now);
                self.take(model);
            }
        }
    }

    fn take(&mut self, model: &mut Model) {
        let entries = model.take_entries();
        if entries.is_empty() {
            return;
        }
        let start = begin_block(&mut self.pending);
        for entry in &entries {
            entry.encode(&mut self.pending);
        }
        end_block(&mut self.pending, start);
    }

    /// Overwrites what an attempt that failed has left behind the last whole block.
    fn flush(&mut self) -> io::Result<()> {
        self.journal.seek(SeekFrom::Start(self.written))?;
        self.journal.write_all(&self.pending)?;
        self.written += self.pending.len() as u64;
        if self.pending.len() > SNAPSHOT_BLOCK_BYTES {
            self.pending = BytesMut::new();
        }
        self.pending.clear();
        Ok(())
    }

    /// Makes the journal anew where most of it is about what is no more. The old one counts until the
    /// new one is whole.
    fn compact(&mut self, model: &Model) {
        if self.written < self.compact_at {
            return;
        }
        let live = model.topics.size_bytes() as u64;
        if self.written / COMPACT_FACTOR < live {
            self.compact_at = self.written + self.written / 4;
            return;
        }
        match write_snapshot(&self.path, model) {
            Ok((journal, length)) => {
                tracing::debug!(
                    folder = %self.path.display(), before = self.written, after = length,
                    "The journal was made anew."
                );
                (self.journal, self.written) = (journal, length);
                self.compact_at = (length * COMPACT_FACTOR).max(COMPACT_BYTES_MIN);
            }
            Err(error) => {
                tracing::warn!(
                    folder = %self.path.display(), %error,
                    "The journal could not be made anew: it goes on growing."
                );
                self.compact_at = self.written * 2;
            }
        }
    }
}

/// The way through a journal from its first block on.
struct Recovery<'a> {
    path: &'a Path,
    file: &'a File,
    reader: BufReader<&'a File>,
    position: u64,
    length: u64,
}

impl<'a> Recovery<'a> {
    fn new(file: &'a File, path: &'a Path) -> Result<Self, FolderError> {
        let length = file.metadata().map_err(io_error("can't read", path))?.len();
        let mut recovery = Self {
            path,
            file,
            reader: BufReader::new(file),
            position: 0,
            length,
        };
        let magic = recovery.read(8)?;
        let format = recovery.read(4)?;
        match (magic, format) {
            (Some(magic), Some(format)) if magic[..] == MAGIC => match be_u32(&format) {
                1..=FORMAT => Ok(recovery),
                found => Err(FolderError::Format {
                    path: path.to_owned(),
                    found,
                }),
            },
            _ => Err(recovery.damaged(0, "it is no journal of this broker")),
        }
    }

    /// Takes every whole block into the model and cuts what is behind the last one; returns the length.
    fn run(mut self, model: &mut Model) -> Result<u64, FolderError> {
        let mut whole = self.position;
        while let Some(block) = self.block()? {
            let entries = Entry::decode_all(&block).map_err(|why| self.damaged(whole, why))?;
            for entry in entries {
                model
                    .restore(entry)
                    .map_err(|why| self.damaged(whole, why))?;
            }
            whole = self.position;
        }
        if whole < self.length {
            tracing::warn!(
                journal = %self.path.display(), bytes = self.length - whole, at = whole,
                "The journal's end is torn and is cut off: nothing of it was acknowledged."
            );
            let cut = self.file.set_len(whole);
            cut.map_err(io_error("can't cut", self.path))?;
        }
        Ok(whole)
    }

    /// The entries of the next block, if it is whole.
    fn block(&mut self) -> Result<Option<Bytes>, FolderError> {
        let Some(header) = self.read(BLOCK_HEADER_BYTES)? else {
            return Ok(None);
        };
        let (length, crc) = header.split_at(4);
        let (length, crc) = (be_u32(length), be_u32(crc));
        // A file system may leave zeros behind what was written.
        if length == 0 {
            return Ok(None);
        }
        let block = self.read(length as usize)?;
        Ok(block
            .filter(|block| crc32c::crc32c(block) == crc)
            .map(Bytes::from))
    }

    /// So many bytes, if they are there.
    fn read(&mut self, count: usize) -> Result<Option<Vec<u8>>, FolderError> {
        if count as u64 > self.length - self.position {
            return Ok(None);
        }
        let mut bytes = vec![0; count];
        let read = self.reader.read_exact(&mut bytes);
        read.map_err(io_error("can't read", self.path))?;
        self.position += count as u64;
        Ok(Some(bytes))
    }

    fn damaged(&self, position: u64, why: impl ToString) -> FolderError {
        FolderError::Damaged {
            path: self.path.to_owned(),
            position,
            why: why.to_string(),
        }
    }
}

/// Writes a journal of the model as it is, aside, then in the place of the one that is there. Returns
/// it with its length.
fn write_snapshot(folder: &Path, model: &Model) -> io::Result<(File, u64)> {
    let aside = folder.join("journal.new");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&aside)?;
    let written = write_blocks(&mut file, model).and_then(|length| {
        // It takes the place of bytes that may have reached the disk long ago.
        file.sync_data()?;
        fs::rename(&aside, folder.join("journal"))?;
        Ok(length)
    });
    match written {
        Ok(length) => Ok((file, length)),
        Err(error) => {
            drop(fs::remove_file(&aside));
            Err(error)
        }
    }
}

fn write_blocks(file: &mut File, model: &Model) -> io::Result<u64> {
    let mut blocks = BytesMut::from(&MAGIC[..]);
    blocks.extend_from_slice(&FORMAT.to_be_bytes());
    let mut length = 0;
    let mut entries = model.snapshot().peekable();
    while entries.peek().is_some() {
        let start = begin_block(&mut blocks);
        while blocks.len() - start < SNAPSHOT_BLOCK_BYTES
            && let Some(entry) = entries.next()
        {
            entry.encode(&mut blocks);
        }
        end_block(&mut blocks, start);
        file.write_all(&blocks)?;
        length += blocks.len() as u64;
        blocks.clear();
    }
    Ok(length)
}

/// Leaves room for a block's header; returns where the block begins.
fn begin_block(out: &mut BytesMut) -> usize {
    let start = out.len();
    out.put_bytes(0, BLOCK_HEADER_BYTES);
    start
}

/// Fills in the header of the block that began at `start`.
fn end_block(out: &mut BytesMut, start: usize) {
    let block = out.get_mut(start..);
    let Some((header, entries)) =
        block.and_then(|block| block.split_at_mut_checked(BLOCK_HEADER_BYTES))
    else {
        return;
    };
    let (length, crc) = header.split_at_mut(4);
    let bytes = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    length.copy_from_slice(&bytes.to_be_bytes());
    crc.copy_from_slice(&crc32c::crc32c(entries).to_be_bytes());
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| FolderError::Io { what, path, source }
}

fn lock(folder: &Path) -> Result<File, FolderError> {
    let path = folder.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(io_error("can't open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(FolderError::InUse(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(io_error("can't lock", &path)(error)),
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::model::{ModelConfig, Output};
    use sharegroup_wire::compress::Compression;
    use sharegroup_wire::frame::{decode_response, encode_request};
    use sharegroup_wire::message::produce::{
        PartitionProduceData, ProduceRequest, TopicProduceData,
    };
    use sharegroup_wire::record::RecordBatchBuilder;
    use sharegroup_wire::{BrokerId, CorrelationId, ErrorCode};

    struct World {
        model: Model,
        folder: Folder,
        now: Instant,
    }

    impl World {
        fn open(path: &Path) -> Self {
            let now = Instant::now();
            let mut model = Model::new(now, ModelConfig::default());
            let folder = Folder::open(path, &mut model, now).unwrap();
            Self { model, folder, now }
        }

        /// Produces a batch as the server does it; returns the result and the offset.
        fn produce(&mut self, sequence: i32) -> (ErrorCode, i64) {
            let mut builder = RecordBatchBuilder::new(Compression::None).producer(7, 0, sequence);
            builder.push(1000, None, Some(b"value"), []).unwrap();
            let data = PartitionProduceData {
                index: 0,
                records: Some(builder.build(0).unwrap()),
            };
            let request = ProduceRequest {
                transactional_id: None,
                acks: -1,
                timeout_ms: 1000,
                topic_data: vec![TopicProduceData {
                    name: "orders".into(),
                    partition_data: vec![data],
                    ..Default::default()
                }],
            };
            let frame = encode_request(&request, 9, CorrelationId(1), None);
            let link = self.model.connect(BrokerId(1), "/127.0.0.1");
            self.folder.retry(&mut self.model);
            self.model.handle_request(self.now, link, frame.slice(4..));
            self.folder.write(&mut self.model, self.now);
            let Some(Output::Send { frame, .. }) = self.model.poll_output() else {
                panic!("no answer");
            };
            let answer = decode_response::<ProduceRequest>(&frame.slice(4..), 9).unwrap();
            let result = &answer.responses[0].partition_responses[0];
            (result.error_code, result.base_offset)
        }
    }

    /// `/dev/full` takes no byte.
    #[test]
    fn a_full_disk_refuses_and_what_was_acknowledged_before_and_after_is_there() {
        let name = format!("sharegroup-broker-full-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut world = World::open(&path);
        world.model.create_topic("orders", 1, 1);
        assert_eq!(world.produce(0), (ErrorCode::None, 0));
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let journal = std::mem::replace(&mut world.folder.journal, full);
        assert_eq!(world.produce(1), (ErrorCode::KafkaStorageError, -1));
        assert_eq!(world.produce(1), (ErrorCode::KafkaStorageError, -1));
        world.folder.journal = journal;
        // It was appended, but not written: what was owed comes first, and nothing comes twice.
        assert_eq!(world.produce(1), (ErrorCode::None, 1));
        assert_eq!(world.produce(2), (ErrorCode::None, 2));
        drop(world);

        let mut world = World::open(&path);
        assert_eq!(world.produce(2), (ErrorCode::None, 2));
        assert_eq!(world.produce(3), (ErrorCode::None, 3));
        drop(world);
        fs::remove_dir_all(&path).unwrap();
    }
}
