//! What an I/O error means for records and task.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

use sharegroup_sink::{OutcomeSender, PutError, TaskError};

use super::request::Request;

/// Something that went wrong with the file: what to say, and the error it comes from.
#[derive(Debug)]
pub(super) struct Trouble {
    message: String,
    error: io::Error,
}

/// An append that broke off.
#[derive(Debug)]
pub(super) struct TornWrite {
    /// Offset of the last record whose line is in the file; half of a further one has been cut off
    /// again.
    pub(super) last_written: Option<i64>,
    pub(super) trouble: Trouble,
}

impl Trouble {
    pub(super) fn new(message: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self {
            message: message.into(),
            error: error.into(),
        }
    }

    pub(super) fn writing(path: &Path, error: io::Error) -> Self {
        let message = format!("the file {} can't be written: {error}", path.display());
        Self::new(message, error)
    }

    /// A limit of this process, a missing right or a path that is no file needs a person; anything
    /// else may pass: of a full disk somebody else frees a part.
    fn needs_a_person(&self) -> bool {
        matches!(
            self.error.kind(),
            ErrorKind::FileTooLarge
                | ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::NotFound
                | ErrorKind::NotADirectory
                | ErrorKind::IsADirectory
                | ErrorKind::Unsupported
        )
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Trouble> for TaskError {
    fn from(trouble: Trouble) -> Self {
        Self::new(trouble.message).caused_by(trouble.error)
    }
}

impl From<Trouble> for PutError {
    fn from(trouble: Trouble) -> Self {
        if trouble.needs_a_person() {
            Self::broken(trouble.message)
        } else {
            Self::retriable(trouble.message)
        }
    }
}

impl From<Trouble> for TornWrite {
    fn from(trouble: Trouble) -> Self {
        Self {
            last_written: None,
            trouble,
        }
    }
}

/// Reports the records whose lines are in the file all the same; the rest have the error.
pub(super) fn report(torn: TornWrite, request: &Request, outcomes: &OutcomeSender) -> PutError {
    if let Some((first, _)) = request.offsets()
        && let Some(last) = torn.last_written
    {
        outcomes.written_range(first, last);
    }
    torn.trouble.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_person_fails_the_task_and_the_rest_is_retried() {
        for (errno, is_retriable) in [
            (28, true),  // ENOSPC
            (122, true), // EDQUOT
            (27, false), // EFBIG
            (13, false), // EACCES
            (5, true),   // EIO
            (116, true), // ESTALE
        ] {
            let error = io::Error::from_raw_os_error(errno);
            let error = PutError::from(Trouble::writing(Path::new("/x/out"), error));
            assert_eq!(error.is_retriable(), is_retriable, "{error}");
            assert!(error.to_string().contains("/x/out can't be written: "));
        }
    }
}
