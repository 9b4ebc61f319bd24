//! The file: lines are appended whole, whatever happens.
//!
//! Several tasks, and several processes, may append to the same file. Each append holds the file's
//! advisory lock, so that a write that breaks off in the middle of a line (a full disk, a quota, a
//! size limit) can be cut back to whole lines before anybody else appends. A process that was killed
//! in the middle of a write can't do that: whoever appends next finds a file that doesn't end with
//! a newline, and starts on a new line.
//!
//! A compressed file is cut back to its last whole part instead (`member`); where none is found it is set
//! aside whole.
//!
//! A file that is renamed or removed (logrotate) is followed by path: lines count as written only
//! if the path still leads to the file that has them. A file that is finished is renamed under its lock,
//! and whoever waits for that looks again where the path leads.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sharegroup_sink::TaskError;
use sharegroup_wire::compress::Compression;

use super::config::{FileConfig, Fsync};
use super::member::{Part, is_compressed, is_half_a_part, last_end};
use super::outcome::{TornWrite, Trouble};
use super::request::Request;
use super::rotation::next_name;

/// A file that only ever grows by whole lines.
#[derive(Debug)]
pub(super) struct LineFile {
    file: File,
    config: FileConfig,
    /// When the file was made, or opened where the file system doesn't know.
    born: SystemTime,
    /// Device and inode.
    identity: (u64, u64),
    /// Where our last append ended: as long as the file ends there, it ends with a whole line.
    end: u64,
    /// Bytes of a file without lines.
    nothing_bytes: u64,
    /// Whether the file's entry in its folder is on the disk.
    entry_is_synced: bool,
    /// Why a file that was left could not be forced to the disk.
    unsynced: Option<io::Error>,
}

impl LineFile {
    /// Opens the file for appending; it is made if it doesn't exist, its folder isn't.
    pub(super) fn open(config: &FileConfig) -> Result<Self, Trouble> {
        let path = config.path.as_path();
        // Looked at first: opening a device may do something.
        if let Ok(there) = std::fs::metadata(path) {
            must_be_a_file(path, &there)?;
        }
        // To open a pipe for reading and writing doesn't wait for anybody.
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(path)
            .map_err(|error| open_trouble(path, error))?;
        let opened = file
            .metadata()
            .map_err(|error| Trouble::writing(path, error))?;
        must_be_a_file(path, &opened)?;
        Ok(Self {
            file,
            config: config.clone(),
            born: opened.created().unwrap_or_else(|_| SystemTime::now()),
            identity: identity(&opened),
            end: 0,
            nothing_bytes: 0,
            entry_is_synced: false,
            unsynced: None,
        })
    }

    /// Begins a compressed file of no bytes with a part that has no lines: no tool takes it for one of its own else,
    /// and without records it would stay as it is.
    pub(super) fn begin(&mut self) -> Result<(), Trouble> {
        let trouble = |error| Trouble::writing(&self.config.path, error);
        let mut nothing = Part::new(self.config.compression, &[]).map_err(trouble)?;
        self.nothing_bytes = nothing.len();
        let _locked = Locked::new(&self.file).map_err(trouble)?;
        if nothing.len() == 0 || self.file.metadata().map_err(trouble)?.len() > 0 {
            return Ok(());
        }
        let (_, error) = write(&self.file, nothing.at(0));
        let Some(error) = error else {
            return Ok(());
        };
        // Half of it would be taken for somebody else's.
        self.file.set_len(0).map_err(trouble)?;
        Err(trouble(error))
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.config.path
    }

    /// Appends the request's lines: all of them, or as many whole ones as fit.
    pub(super) fn append(&mut self, request: &Request) -> Result<(), TornWrite> {
        let part = Part::new(self.config.compression, request.lines());
        let mut part = part.map_err(|error| Trouble::writing(self.path(), error))?;
        // With rotation the tasks that share a file finish it for each other, and each time one has written.
        let replaced_max = match self.config.rotation.is_on() {
            true => ROTATED_MAX,
            false => REPLACED_MAX,
        };
        for _ in 0..replaced_max {
            if let Some(appended) = self.append_here(request, &mut part)? {
                return appended;
            }
            // What went into a file that was moved meanwhile isn't where it should be.
            self.reopen()?;
        }
        let message = format!(
            "the file {} is moved or removed again and again",
            self.path().display()
        );
        Err(Trouble::new(message, ErrorKind::Other).into())
    }

    /// `None` where the path doesn't lead to the file, or no longer: looked at under the lock, under which files are
    /// finished here.
    fn append_here(
        &mut self,
        request: &Request,
        part: &mut Part<'_>,
    ) -> Result<Option<Result<(), TornWrite>>, Trouble> {
        let trouble = |error| Trouble::writing(&self.config.path, error);
        let _locked = Locked::new(&self.file).map_err(trouble)?;
        if !self.is_in_place()? {
            return Ok(None);
        }
        let Some(length) = self.whole_length().map_err(trouble)? else {
            return Ok(None);
        };
        let filled = if length == self.nothing_bytes {
            0
        } else {
            length
        };
        if self.config.rotation.is_due(filled, part.len(), self.born) {
            let finished = self.set_aside().map_err(trouble)?;
            tracing::info!(file = %self.path().display(), finished = %finished.display(), "The file is finished.");
            return Ok(None);
        }
        let (end, appended) = self.write_part(request, part, length);
        self.end = end;
        Ok(self.is_in_place()?.then_some(appended))
    }

    /// Writes at the file's end, which is at `length`. The answer is where it ends with a whole part then.
    fn write_part(
        &self,
        request: &Request,
        part: &mut Part<'_>,
        length: u64,
    ) -> (u64, Result<(), TornWrite>) {
        let bytes = part.at(length);
        let (written, error) = write(&self.file, bytes);
        let Some(error) = error else {
            return (length + part.len(), Ok(()));
        };
        let trouble = Trouble::writing(self.path(), error);
        let whole = match part {
            Part::Lines(_) => request.complete_within(written),
            Part::Member(..) => None,
        };
        let end = length + whole.map_or(0, |(_, bytes)| bytes as u64);
        let torn = TornWrite {
            last_written: whole.map(|(offset, _)| offset),
            trouble,
        };
        match self.file.set_len(end) {
            Ok(()) => (end, Err(torn)),
            Err(error) => {
                tracing::error!(
                    file = %self.path().display(),
                    %error,
                    "Half a part was written and can't be cut off."
                );
                // The next append finds it: half a line is left on a line of its own, half a member cut off.
                (self.end, Err(torn))
            }
        }
    }

    /// Forces everything to the disk where that is wanted of a file that is finished.
    pub(super) fn finish(&mut self) -> Result<(), Trouble> {
        match self.config.fsync {
            Fsync::Never => Ok(()),
            Fsync::Finished | Fsync::Each => self.sync(),
        }
    }

    /// Forces everything appended so far to the disk; without its entry in the folder a new file
    /// would be gone after a power cut.
    pub(super) fn sync(&mut self) -> Result<(), Trouble> {
        self.try_sync()
            .map_err(|error| Trouble::writing(self.path(), error))
    }

    fn try_sync(&mut self) -> io::Result<()> {
        if let Some(error) = self.unsynced.take() {
            return Err(error);
        }
        self.file.sync_data()?;
        if !self.entry_is_synced {
            match File::open(folder(self.path())).and_then(|folder| folder.sync_all()) {
                // Not every file system syncs folders, and not every folder may be read.
                Err(error) if !is_a_refusal(error.kind()) => return Err(error),
                _ => self.entry_is_synced = true,
            }
        }
        Ok(())
    }

    /// Whether the path leads to the open file.
    fn is_in_place(&self) -> Result<bool, Trouble> {
        match std::fs::metadata(self.path()) {
            // Under `/dev/fd` a path leads to a file that is deleted.
            Ok(there) => Ok(identity(&there) == self.identity && there.nlink() > 0),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Trouble::writing(self.path(), error)),
        }
    }

    /// Renames the file, which must be locked and in place.
    fn set_aside(&self) -> io::Result<PathBuf> {
        let name = next_name(self.path())?;
        std::fs::rename(self.path(), &name)?;
        Ok(name)
    }

    /// Leaves the file to whoever moved it, and goes on in the one that the path leads to.
    fn reopen(&mut self) -> Result<(), Trouble> {
        let mut new = Self::open(&self.config)?;
        // What is in the old one may be waiting for a flush.
        new.unsynced = self.try_sync().err();
        *self = new;
        self.begin()?;
        if self.config.rotation.is_on() {
            return Ok(());
        }
        tracing::warn!(
            file = %self.path().display(),
            "The file was moved or removed; records go to a new one."
        );
        Ok(())
    }

    /// Sees to it that the file ends where a part does. The answer is its length; `None` where it was set aside.
    fn whole_length(&self) -> io::Result<Option<u64>> {
        let length = self.file.metadata()?.len();
        if length == self.end {
            return Ok(Some(length));
        }
        match self.config.compression {
            Compression::None if is_compressed(&self.file)? => {
                self.set_foreign_aside("The file is compressed, and compression.type is none")?;
                Ok(None)
            }
            Compression::None => self.start_on_a_new_line(length).map(Some),
            codec => self.start_on_a_new_member(codec, length),
        }
    }

    /// Cuts off half a member that somebody left behind: its records were not accepted.
    fn start_on_a_new_member(&self, codec: Compression, length: u64) -> io::Result<Option<u64>> {
        let file = self.path().display();
        if length == 0 {
            return Ok(Some(0));
        }
        match last_end(&self.file, codec, length)? {
            Some(end) if end == length => {}
            Some(end) if is_half_a_part(&self.file, codec, end)? => {
                tracing::warn!(%file, length, end, "The file was left in the middle of a write, whose records come again: cut back to its last whole part.");
                self.file.set_len(end)?;
            }
            Some(_) => {
                self.set_foreign_aside("Somebody else wrote behind the last part of the file")?;
                return Ok(None);
            }
            None => {
                self.set_foreign_aside("The file was not written by this sink with this compression.type, or left in its first write")?;
                return Ok(None);
            }
        }
        Ok(Some(self.file.metadata()?.len()))
    }

    /// What stays as it is, for this reason.
    fn set_foreign_aside(&self, why: &str) -> io::Result<()> {
        let name = self.set_aside()?;
        tracing::warn!(file = %self.path().display(), set_aside = %name.display(), "{why}: set aside, records go to a new one.");
        Ok(())
    }

    /// Ends a half line that somebody left behind. The answer is the file's length.
    fn start_on_a_new_line(&self, length: u64) -> io::Result<u64> {
        let Some(last) = length.checked_sub(1) else {
            return Ok(length);
        };
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, last)?;
        if byte == *b"\n" {
            return Ok(length);
        }
        tracing::warn!(
            file = %self.path().display(),
            length,
            "The file does not end with a newline: its last line may be half of a record. Appending on a new line."
        );
        (&self.file).write_all(b"\n")?;
        Ok(length + 1)
    }
}

/// How often a file may be moved by somebody during one append.
const REPLACED_MAX: usize = 10;
/// The same where tasks, of any number, finish it.
const ROTATED_MAX: usize = 10_000;

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// What a pipe or a device swallows is written nowhere.
fn must_be_a_file(path: &Path, metadata: &Metadata) -> Result<(), Trouble> {
    let Some(what) = not_a_file(metadata.file_type()) else {
        return Ok(());
    };
    let message = format!(
        "{} is {what}: the file sink writes to regular files only; connector.class=console prints to standard output",
        path.display()
    );
    Err(Trouble::new(message, ErrorKind::Unsupported))
}

pub(super) fn not_a_file(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_fifo() => Some("a named pipe"),
        kind if kind.is_socket() => Some("a socket"),
        kind if kind.is_char_device() || kind.is_block_device() => Some("a device"),
        _ => Some("no file"),
    }
}

/// Keeps the advisory lock of a file.
struct Locked<'a>(&'a File);

impl<'a> Locked<'a> {
    fn new(file: &'a File) -> io::Result<Self> {
        match file.lock() {
            Ok(()) => {}
            // Some network file systems have no locks; a sole writer doesn't need one.
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(error),
        }
        Ok(Self(file))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // An unlock fails only for a file that isn't locked.
        drop(self.0.unlock());
    }
}

/// Writes as much as it can; the answer is how much that was, and what stopped it.
fn write(mut file: &File, lines: &[u8]) -> (usize, Option<io::Error>) {
    let mut written = 0;
    while let Some(rest) = lines.get(written..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Ok(0) => return (written, Some(ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (written, Some(error)),
        }
    }
    (written, None)
}

pub(super) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

const fn is_a_refusal(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied
    )
}

fn open_trouble(path: &Path, error: io::Error) -> Trouble {
    let folder = folder(path);
    let shown = path.display();
    let message = if error.kind() == ErrorKind::NotFound && !folder.is_dir() {
        format!(
            "the folder {} of the file {shown} does not exist: create it",
            folder.display()
        )
    } else {
        format!("the file {shown} can't be opened for appending: {error}")
    };
    Trouble::new(message, error)
}

/// A write beyond a file size limit (`ulimit -f`) would kill the process; with a handler for
/// SIGXFSZ it fails with EFBIG, and only the task fails.
pub(super) fn survive_file_size_limit() -> Result<(), TaskError> {
    let kind = tokio::signal::unix::SignalKind::from_raw(SIGXFSZ);
    // The handler stays for good, also when this is dropped.
    tokio::signal::unix::signal(kind)
        .map(drop)
        .map_err(|error| TaskError::new("no handler for SIGXFSZ can be installed").caused_by(error))
}

/// The same number on Linux (x86, ARM, RISC-V) and macOS.
const SIGXFSZ: i32 = 25;
