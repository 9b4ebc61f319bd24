//! A journal is read back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

use super::{BLOCK_HEADER_BYTES, FORMAT, FolderError, MAGIC, be_u32, io_error};
use crate::model::Model;
use crate::model::journal::Entry;

/// Most bytes that may lie behind the last whole block. A write that ended early leaves less: it is about
/// the requests of one step.
const TORN_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How many torn ends are kept beside a journal; the oldest ones go first.
const CUTS_MAX: usize = 8;

/// The way through a journal from its first block on.
pub(super) struct Recovery<'a> {
    path: &'a Path,
    file: &'a File,
    reader: BufReader<&'a File>,
    position: u64,
    length: u64,
}

impl<'a> Recovery<'a> {
    pub(super) fn new(file: &'a File, path: &'a Path) -> Result<Self, FolderError> {
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

    /// Takes every whole block into the model and cuts a torn end; returns the length.
    pub(super) fn run(mut self, model: &mut Model) -> Result<u64, FolderError> {
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
            self.cut(whole)?;
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

    /// Cuts what is behind the last whole block, and keeps it beside the journal. It is torn only where no
    /// write has come behind it: a whole block further on was told to clients, and stays.
    fn cut(&self, whole: u64) -> Result<(), FolderError> {
        if self.length - whole > TORN_BYTES_MAX {
            return Err(self.damaged(
                whole,
                "a block is not whole, and more lies behind it than one write leaves",
            ));
        }
        let tail = self
            .tail(whole)
            .map_err(io_error("can't read", self.path))?;
        if let Some(next) = next_block(&tail) {
            let next = whole + next as u64;
            return Err(self.damaged(
                whole,
                format!("a block is not whole, and a whole one follows at byte {next}"),
            ));
        }
        let kept = put_aside(self.path, whole, &tail);
        let kept = kept.map_err(io_error("can't put aside the torn end of", self.path))?;
        tracing::warn!(
            journal = %self.path.display(), at = whole, bytes = tail.len(),
            kept = kept.map(|path| path.display().to_string()),
            "The journal's last block is not whole, as where the process or the machine ended in a write; \
             it is cut off. Clients were told nothing of it if the process ended, and perhaps if the machine did."
        );
        let cut = self.file.set_len(whole);
        cut.map_err(io_error("can't cut", self.path))
    }

    fn tail(&self, from: u64) -> io::Result<Bytes> {
        let mut file = self.file;
        file.seek(SeekFrom::Start(from))?;
        let mut tail = Vec::new();
        file.take(self.length - from).read_to_end(&mut tail)?;
        Ok(tail.into())
    }

    fn damaged(&self, position: u64, why: impl ToString) -> FolderError {
        FolderError::Damaged {
            path: self.path.to_owned(),
            position,
            behind: self.length - position,
            why: why.to_string(),
        }
    }
}

/// Where the first whole block lies behind one that isn't, at whichever byte it begins.
fn next_block(tail: &Bytes) -> Option<usize> {
    let headers = tail.windows(BLOCK_HEADER_BYTES).enumerate().skip(1);
    let mut whole = headers.filter(|(at, header)| {
        let (length, crc) = header.split_at(4);
        let start = at + BLOCK_HEADER_BYTES;
        let length = be_u32(length) as usize;
        if length == 0 || length > tail.len() - start {
            return false;
        }
        let block = tail.slice(start..start + length);
        // What isn't a block is none from its first entry on, as a rule: its sum need not be taken.
        Entry::decode_all(&block).is_ok() && crc32c::crc32c(&block) == be_u32(crc)
    });
    whole.next().map(|(at, _)| at)
}

/// Keeps what is cut off a journal in a file beside it, and returns that. Zeros are nothing to keep.
fn put_aside(journal: &Path, at: u64, tail: &[u8]) -> io::Result<Option<PathBuf>> {
    if tail.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let mut path = journal.with_extension(format!("cut-{at}"));
    let mut number = 1;
    while path.exists() {
        number += 1;
        path = journal.with_extension(format!("cut-{at}-{number}"));
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    if let Err(error) = file.write_all(tail) {
        drop(fs::remove_file(&path));
        return Err(error);
    }
    let mut cuts = cuts(journal)?;
    cuts.sort();
    let surplus = cuts.len().saturating_sub(CUTS_MAX);
    for (_, old) in cuts.iter().take(surplus) {
        fs::remove_file(old)?;
    }
    Ok(Some(path))
}

/// The ends that were cut off before, each with its time.
fn cuts(journal: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let mut cuts = Vec::new();
    for file in journal
        .parent()
        .into_iter()
        .flat_map(fs::read_dir)
        .flatten()
    {
        let file = file?;
        let name = file.file_name();
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("journal.cut-"))
        {
            cuts.push((file.metadata()?.modified()?, file.path()));
        }
    }
    Ok(cuts)
}
