//! How an application settles records.

use sharegroup_session::Acknowledgement;

/// How a record is settled (KIP-932; renew: KIP-1222).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Acknowledge {
    /// Processed. Once the broker has confirmed it, the record never comes again.
    Accept,
    /// Not processed; available again at once, to any member. Each delivery counts against the
    /// group's `share.delivery.count.limit`: a record that is released at once again and again is
    /// archived by the broker within milliseconds. Not for retries: hold the record instead, its lock
    /// is renewed.
    Release,
    /// Can't be processed; archived by the broker, or written to the group's dead-letter topic.
    Reject,
    /// Renew the lock now. Locks of unsettled records are renewed by themselves; the record stays
    /// unsettled.
    Renew,
}

impl Acknowledge {
    /// The terminal acknowledgement; `None` for a renewal.
    pub(crate) const fn terminal(self) -> Option<Acknowledgement> {
        match self {
            Self::Accept => Some(Acknowledgement::Accept),
            Self::Release => Some(Acknowledgement::Release),
            Self::Reject => Some(Acknowledgement::Reject),
            Self::Renew => None,
        }
    }
}
