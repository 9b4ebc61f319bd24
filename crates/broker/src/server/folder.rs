//! The folder that a cluster's state lives in ([`BrokerBuilder::dir`](super::BrokerBuilder::dir)).
//!
//! ```text
//! lock              held by the process that uses the folder
//! journal           what happened, and nothing else; held too
//! journal.new       a journal that is being made; it counts from its renaming on
//! journal.cut-BYTE  a torn end that was cut off a journal there
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
//! process in any way, but not of the machine. Behind each write the folder's path must still lead to the
//! file that was written: where the folder was deleted, or another broker has made it anew, nothing more is
//! acknowledged, and nothing there is replaced.

mod recovery;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use sharegroup_wire::record::RecordBatch;
use thiserror::Error;

use self::recovery::Recovery;
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
    /// The file is no journal, or one that is damaged in a way that no crash explains. It is left as it is.
    #[error(
        "{} is damaged at byte {position}: {why}. Nothing of it was changed; {behind} bytes are there from \
         that byte on. Put a sound copy in its place, or take another folder{}",
        path.display(), advice_to_cut(*position)
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Where.
        position: u64,
        /// Bytes from there to the end.
        behind: u64,
        /// Why.
        why: String,
    },
}

fn advice_to_cut(position: u64) -> String {
    if position == 0 {
        return String::new();
    }
    format!(
        "; or, to go on without what is there from that byte on, copy the file and cut it: \
         truncate -s {position}"
    )
}

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
    /// Locked too: whoever has lost the other lock's file meets this one.
    journal: File,
    journal_id: FileId,
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
        let exists = journal_path.try_exists();
        if !exists.map_err(io_error("can't look for", &journal_path))? {
            let made = write_snapshot(path, model, None);
            made.map_err(io_error("can't write", &journal_path))?;
        }
        let journal = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&journal_path)
            .map_err(io_error("can't open", &journal_path))?;
        hold(&journal, path, &journal_path)?;
        let journal_id = FileId::of(&journal).map_err(io_error("can't read", &journal_path))?;
        let written = Recovery::new(&journal, &journal_path)?.run(model)?;
        model.keep_journal();
        model.finish_restore(now);
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
            journal,
            journal_id,
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
        let has_noted = self.take(model);
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
                model.refuse_outputs(now, has_noted);
                self.take(model);
            }
        }
    }

    /// Records that are in memory alone; `None` where everything is written.
    pub(super) fn unwritten_records(&self) -> Option<u64> {
        self.is_failing.then(|| records(&self.pending))
    }

    /// At the cluster's end: what could not be written before is tried a last time.
    pub(super) fn end(mut self) {
        if self.is_failing
            && let Err(error) = self.flush()
        {
            tracing::error!(
                folder = %self.path.display(), %error,
                records = records(&self.pending), bytes = self.pending.len(),
                "The folder could not be written to the end: what is in memory alone is lost. It was refused, \
                 not acknowledged."
            );
        }
    }

    /// Takes what the model has noted; returns whether it was anything.
    fn take(&mut self, model: &mut Model) -> bool {
        let entries = model.take_entries();
        if entries.is_empty() {
            return false;
        }
        let start = begin_block(&mut self.pending);
        for entry in &entries {
            entry.encode(&mut self.pending);
        }
        end_block(&mut self.pending, start);
        true
    }

    /// Overwrites what an attempt that failed has left behind the last whole block.
    fn flush(&mut self) -> io::Result<()> {
        self.journal.seek(SeekFrom::Start(self.written))?;
        self.journal.write_all(&self.pending)?;
        check_in_place(&self.path, Some(self.journal_id))?;
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
        match write_snapshot(&self.path, model, Some(self.journal_id)) {
            Ok((journal, journal_id, length)) => {
                tracing::debug!(
                    folder = %self.path.display(), before = self.written, after = length,
                    "The journal was made anew."
                );
                (self.journal, self.journal_id, self.written) = (journal, journal_id, length);
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

/// Names a file for as long as it is open, whatever becomes of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| Self::new(&metadata))
    }

    /// The file that is at a path, if one is.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self::new(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[cfg(unix)]
    fn new(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self(metadata.dev(), metadata.ino())
    }

    /// Elsewhere an open file can't be replaced.
    #[cfg(not(unix))]
    fn new(_: &fs::Metadata) -> Self {
        Self(0, 0)
    }
}

/// Whether a folder's journal is still this one.
fn check_in_place(folder: &Path, journal: Option<FileId>) -> io::Result<()> {
    match FileId::at(&folder.join("journal"))? {
        found if found == journal => Ok(()),
        None => Err(io::Error::other(
            "its journal was deleted while it was in use",
        )),
        Some(_) => Err(io::Error::other(
            "another file has taken the place of its journal",
        )),
    }
}

/// Writes a journal of the model as it is, aside, then in the place of the one that is there, which has to
/// be `replaced`. Returns it with its length.
fn write_snapshot(
    folder: &Path,
    model: &Model,
    replaced: Option<FileId>,
) -> io::Result<(File, FileId, u64)> {
    let aside = folder.join("journal.new");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&aside)?;
    let written = write_blocks(&mut file, model).and_then(|length| {
        // It takes the place of bytes that may have reached the disk long ago.
        file.sync_data()?;
        file.try_lock()?;
        let id = FileId::of(&file)?;
        check_in_place(folder, replaced)?;
        fs::rename(&aside, folder.join("journal"))?;
        Ok((id, length))
    });
    match written {
        Ok((id, length)) => Ok((file, id, length)),
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

/// The lock's file; the path leads to it once it is held.
fn lock(folder: &Path) -> Result<File, FolderError> {
    let path = folder.join("lock");
    loop {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(io_error("can't open", &path))?;
        hold(&file, folder, &path)?;
        let held = FileId::of(&file).map_err(io_error("can't read", &path))?;
        if FileId::at(&path).map_err(io_error("can't read", &path))? == Some(held) {
            return Ok(file);
        }
    }
}

fn hold(file: &File, folder: &Path, path: &Path) -> Result<(), FolderError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => FolderError::InUse(folder.to_owned()),
        TryLockError::Error(error) => io_error("can't lock", path)(error),
    })
}

/// The records that blocks add.
fn records(mut blocks: &[u8]) -> u64 {
    let mut records = 0;
    while let Some((header, rest)) = blocks.split_at_checked(BLOCK_HEADER_BYTES)
        && let Some((block, rest)) = rest.split_at_checked(be_u32(header) as usize)
    {
        let entries = Entry::decode_all(&Bytes::copy_from_slice(block));
        for entry in entries.into_iter().flatten() {
            if let Entry::Batch { bytes, .. } = entry {
                let batch = RecordBatch::read(bytes);
                records += batch.map_or(0, |batch| u64::from(batch.record_count().unsigned_abs()));
            }
        }
        blocks = rest;
    }
    records
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
