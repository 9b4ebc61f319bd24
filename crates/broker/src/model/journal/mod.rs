//! What must outlive the process, as a journal of [`Entry`]s.
//!
//! The model writes nothing itself. Once [`Model::keep_journal`] was called it notes each change that a
//! real broker would have on its disk, and whoever drives it takes the entries and writes them before
//! it sends any answer:
//!
//! ```text
//! handle_request ─► take_entries ─► written ─► poll_output
//!                                └► not written: refuse_outputs ─► poll_output
//! ```
//!
//! [`Model::restore`] takes the entries back, in their order, and [`Model::finish_restore`] makes a running
//! cluster of them. [`Model::snapshot`] says the same in as few entries as possible.
//!
//! Members, share sessions, acquisitions and parked requests are no part of it: as after a restart of a
//! real broker, members join anew, and what they held is available without those deliveries being
//! counted. What tests change through the model's public fields is not noted.

mod entry;
mod notes;
mod restore;
mod snapshot;

pub use entry::{Entry, PartitionMeta, PlaceMeta, ProducerMeta, Value};
pub use restore::RestoreError;

pub(super) use notes::value_list;

use super::Model;

/// Entries that wait to be taken; `None` = nobody wants any.
#[derive(Debug, Default)]
pub(crate) struct Journal(Option<Vec<Entry>>);

impl Journal {
    /// Whether somebody wants entries.
    pub(crate) const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Notes an entry, which is made only where somebody wants it.
    pub(crate) fn note(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(entries) = &mut self.0 {
            entries.push(entry());
        }
    }
}

impl Model {
    /// Notes changes from now on.
    pub fn keep_journal(&mut self) {
        self.journal.0.get_or_insert_default();
    }

    /// What was noted since the last call. The entries of one call belong together: either all of them
    /// are found after a restart, or none.
    pub fn take_entries(&mut self) -> Vec<Entry> {
        self.journal
            .0
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }
}
