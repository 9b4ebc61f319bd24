//! The file: lines are appended whole, whatever happens.
//!
//! Several tasks, and several processes, may append to the same file. Each append holds the file's
//! advisory lock, so that a write that breaks off in the middle of a line (a full disk, a quota, a
//! size limit) can be cut back to whole lines before anybody else appends. A process that was killed
//! in the middle of a write can't do that: whoever appends next finds a file that doesn't end with
//! a newline, and starts on a new line.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sharegroup_sink::TaskError;

use super::request::Request;

/// A file that only ever grows by whole lines.
#[derive(Debug)]
pub(super) struct LineFile {
    file: File,
    path: PathBuf,
    /// Where our last append ended: as long as the file ends there, it ends with a whole line.
    end: AtomicU64,
}

/// An append that broke off.
#[derive(Debug)]
pub(super) struct TornWrite {
    /// Offset of the last record whose line is in the file; half of a further one has been cut off
    /// again.
    pub(super) last_written: Option<i64>,
    pub(super) error: io::Error,
}

impl LineFile {
    /// Opens the file for appending; it is made if it doesn't exist, its folder isn't.
    pub(super) fn open(path: &Path) -> Result<Self, TaskError> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(path);
        let file = file.map_err(|error| open_error(path, error))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            end: AtomicU64::new(0),
        })
    }

    /// Appends the request's lines: all of them, or as many whole ones as fit.
    pub(super) fn append(&self, request: &Request) -> Result<(), TornWrite> {
        let lines = request.lines();
        let nothing_written = |error| TornWrite {
            last_written: None,
            error,
        };
        let _locked = Locked::new(&self.file).map_err(nothing_written)?;
        let length = self.start_on_a_new_line().map_err(nothing_written)?;
        let (written, error) = write(&self.file, lines);
        let Some(error) = error else {
            self.end
                .store(length + lines.len() as u64, Ordering::Relaxed);
            return Ok(());
        };
        let whole = request.complete_within(written);
        let end = length + whole.map_or(0, |(_, bytes)| bytes as u64);
        match self.file.set_len(end) {
            Ok(()) => self.end.store(end, Ordering::Relaxed),
            // The next append finds the half line and leaves it on a line of its own.
            Err(error) => tracing::error!(
                file = %self.path.display(),
                %error,
                "Half a line was written and can't be cut off."
            ),
        }
        Err(TornWrite {
            last_written: whole.map(|(offset, _)| offset),
            error,
        })
    }

    /// Forces everything appended so far to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Ends a half line that somebody left behind. The answer is the file's length.
    fn start_on_a_new_line(&self) -> io::Result<u64> {
        let length = self.file.metadata()?.len();
        if length == self.end.load(Ordering::Relaxed) {
            return Ok(length);
        }
        let Some(last) = length.checked_sub(1) else {
            return Ok(length);
        };
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, last)?;
        if byte == *b"\n" {
            return Ok(length);
        }
        tracing::warn!(
            file = %self.path.display(),
            length,
            "The file does not end with a newline: its last line may be half of a record. Appending on a new line."
        );
        (&self.file).write_all(b"\n")?;
        Ok(length + 1)
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

fn open_error(path: &Path, error: io::Error) -> TaskError {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let shown = path.display();
    let message = if error.kind() == ErrorKind::NotFound && !folder.is_dir() {
        format!(
            "the folder {} of the file {shown} does not exist: create it",
            folder.display()
        )
    } else {
        format!("the file {shown} can't be opened for appending: {error}")
    };
    TaskError::new(message).caused_by(error)
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
