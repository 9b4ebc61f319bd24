//! What an I/O error means for records and task.

use std::io::{self, ErrorKind};
use std::path::Path;

use sharegroup_sink::{OutcomeSender, PutError};

use super::request::Request;
use super::service::TornWrite;

/// Reports the records whose lines are in the file all the same; the rest have the error.
pub(super) fn report(
    torn: TornWrite,
    request: &Request,
    path: &Path,
    outcomes: &OutcomeSender,
) -> PutError {
    if let Some((first, _)) = request.offsets()
        && let Some(last) = torn.last_written
    {
        outcomes.written_range(first, last);
    }
    classify(&torn.error, path)
}

/// A full disk, a limit or a missing right needs a person: the task fails. Anything else may pass.
pub(super) fn classify(error: &io::Error, path: &Path) -> PutError {
    let needs_a_person = matches!(
        error.kind(),
        ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::FileTooLarge
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotFound
    );
    let message = format!("the file {} can't be written: {error}", path.display());
    if needs_a_person {
        PutError::fatal(message)
    } else {
        PutError::retriable(message)
    }
}
