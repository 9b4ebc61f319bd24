//! Share sessions at one broker (KIP-932 "Share sessions"): which partitions a member fetches, and
//! the epoch that its next request must have.

use std::collections::{BTreeMap, BTreeSet};

use sharegroup_wire::{ErrorCode, SessionEpoch};

use super::LinkId;
use super::topics::Place;

/// Group and member.
pub type SessionKey = (String, String);

/// A session.
#[derive(Debug, Clone)]
pub struct ShareSession {
    /// The epoch of the next request.
    pub epoch: SessionEpoch,
    /// Its partitions, in the order in which they came; see [`move_back`](Self::move_back).
    pub partitions: Vec<Place>,
    /// Partitions that the next answer names even if there is nothing to say of them: they are new, or
    /// an error was told last.
    pub owed: BTreeSet<Place>,
    /// The connection that opened it.
    pub link: LinkId,
}

impl ShareSession {
    /// The partitions in the order in which a request is served: another one comes first each time,
    /// so that none starves.
    #[must_use]
    pub fn rotated(&self, epoch: SessionEpoch) -> Vec<Place> {
        let mut places = self.partitions.clone();
        let count = places.len().max(1);
        let by = usize::try_from(epoch.0).unwrap_or(0) % count;
        if by < places.len() {
            places.rotate_left(by);
        }
        places
    }

    /// Adds partitions, then removes others: a partition that is in both is gone.
    pub fn change(&mut self, added: impl IntoIterator<Item = Place>, forgotten: &[Place]) {
        for place in added {
            if !self.partitions.contains(&place) {
                self.partitions.push(place);
                self.owed.insert(place);
            }
        }
        self.partitions.retain(|place| !forgotten.contains(place));
        self.owed.retain(|place| !forgotten.contains(place));
    }

    /// Partitions whose records went out come last from now on, in this order.
    pub fn move_back(&mut self, served: &[Place]) {
        let is_here = |place: &&Place| self.partitions.contains(place);
        let served: Vec<Place> = served.iter().filter(is_here).copied().collect();
        self.partitions.retain(|place| !served.contains(place));
        self.partitions.extend(served);
    }
}

/// How a request stands to the sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It opened one.
    Opened,
    /// It goes on with one.
    Continued,
    /// It ends one.
    Closing,
}

/// The sessions of one broker, and the session that each connection remembers.
///
/// *Quirk*: a connection remembers one session, the latest; when that connection ends, an older one
/// that it carried stays, and what it holds stays locked until the locks end.
#[derive(Debug, Clone, Default)]
pub struct ShareSessions {
    sessions: BTreeMap<SessionKey, ShareSession>,
    by_link: BTreeMap<LinkId, SessionKey>,
}

impl ShareSessions {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// A member's session.
    #[must_use]
    pub fn get(&self, key: &SessionKey) -> Option<&ShareSession> {
        self.sessions.get(key)
    }

    /// A member's session, to be changed.
    pub fn get_mut(&mut self, key: &SessionKey) -> Option<&mut ShareSession> {
        self.sessions.get_mut(key)
    }

    /// The members of a group that have a session.
    pub fn members<'a>(&'a self, group_id: &'a str) -> impl Iterator<Item = &'a str> {
        let keys = self
            .sessions
            .keys()
            .filter(move |(group, _)| group == group_id);
        keys.map(|(_, member)| member.as_str())
    }

    /// Whether any member of a group has a session.
    #[must_use]
    pub fn has_members(&self, group_id: &str) -> bool {
        self.members(group_id).next().is_some()
    }

    /// Checks a request's epoch and moves the session's on. Epoch 0 opens a session and drops an
    /// older one of the same member, without releasing what that one held.
    ///
    /// # Errors
    /// SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED.
    pub fn admit(
        &mut self,
        key: &SessionKey,
        link: LinkId,
        epoch: SessionEpoch,
        sessions_max: usize,
    ) -> Result<Admission, ErrorCode> {
        if epoch == SessionEpoch::OPEN {
            self.remove(key);
            if self.sessions.len() >= sessions_max {
                return Err(ErrorCode::ShareSessionLimitReached);
            }
            let session = ShareSession {
                epoch: epoch.next(),
                partitions: Vec::new(),
                owed: BTreeSet::new(),
                link,
            };
            self.sessions.insert(key.clone(), session);
            self.by_link.insert(link, key.clone());
            return Ok(Admission::Opened);
        }
        let session = self
            .sessions
            .get_mut(key)
            .ok_or(ErrorCode::ShareSessionNotFound)?;
        if epoch == SessionEpoch::CLOSE {
            return Ok(Admission::Closing);
        }
        if epoch != session.epoch {
            return Err(ErrorCode::InvalidShareSessionEpoch);
        }
        session.epoch = epoch.next();
        Ok(Admission::Continued)
    }

    /// Removes a session.
    pub fn remove(&mut self, key: &SessionKey) -> Option<ShareSession> {
        let session = self.sessions.remove(key)?;
        self.by_link.remove(&session.link);
        Some(session)
    }

    /// A connection ended: the session that it remembers goes with it.
    pub fn end_link(&mut self, link: LinkId) -> Option<(SessionKey, ShareSession)> {
        let key = self.by_link.remove(&link)?;
        let session = self.sessions.remove(&key)?;
        Some((key, session))
    }

    /// All sessions are gone: the broker starts anew.
    pub fn clear(&mut self) {
        self.sessions.clear();
        self.by_link.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sharegroup_wire::TopicId;

    fn key(member: &str) -> SessionKey {
        ("g".to_owned(), member.to_owned())
    }

    #[test]
    fn epochs_go_up_by_one_and_wrap_to_one() {
        let mut sessions = ShareSessions::default();
        let mut admit = |epoch| sessions.admit(&key("a"), LinkId(1), SessionEpoch(epoch), 10);
        assert_eq!(admit(1), Err(ErrorCode::ShareSessionNotFound));
        assert_eq!(admit(-1), Err(ErrorCode::ShareSessionNotFound));
        assert_eq!(admit(0), Ok(Admission::Opened));
        assert_eq!(admit(2), Err(ErrorCode::InvalidShareSessionEpoch));
        assert_eq!(admit(1), Ok(Admission::Continued));
        assert_eq!(admit(1), Err(ErrorCode::InvalidShareSessionEpoch));
        assert_eq!(admit(-1), Ok(Admission::Closing));
        sessions.get_mut(&key("a")).unwrap().epoch = SessionEpoch(i32::MAX);
        let wraps = sessions.admit(&key("a"), LinkId(1), SessionEpoch(i32::MAX), 10);
        assert_eq!(wraps, Ok(Admission::Continued));
        assert_eq!(sessions.get(&key("a")).unwrap().epoch, SessionEpoch(1));
    }

    #[test]
    fn a_connection_remembers_its_latest_session_only() {
        let mut sessions = ShareSessions::default();
        sessions
            .admit(&key("a"), LinkId(1), SessionEpoch::OPEN, 10)
            .unwrap();
        sessions
            .admit(&key("b"), LinkId(1), SessionEpoch::OPEN, 10)
            .unwrap();
        let (ended, _) = sessions.end_link(LinkId(1)).unwrap();
        assert_eq!(ended, key("b"));
        assert!(sessions.get(&key("a")).is_some());
    }

    #[test]
    fn a_session_opened_anew_elsewhere_outlives_its_old_connection() {
        let mut sessions = ShareSessions::default();
        sessions
            .admit(&key("a"), LinkId(1), SessionEpoch::OPEN, 1)
            .unwrap();
        sessions
            .admit(&key("a"), LinkId(2), SessionEpoch::OPEN, 1)
            .unwrap();
        assert!(sessions.end_link(LinkId(1)).is_none());
        let full = sessions.admit(&key("b"), LinkId(3), SessionEpoch::OPEN, 1);
        assert_eq!(full, Err(ErrorCode::ShareSessionLimitReached));
        assert!(sessions.end_link(LinkId(2)).is_some());
    }

    #[test]
    fn partitions_come_first_in_turn() {
        let places: Vec<Place> = (0..3).map(|index| (TopicId::ZERO, index)).collect();
        let mut session = ShareSession {
            epoch: SessionEpoch(1),
            partitions: Vec::new(),
            owed: BTreeSet::new(),
            link: LinkId(1),
        };
        session.change(places.clone(), &[]);
        let first = |epoch| session.rotated(SessionEpoch(epoch))[0].1;
        assert_eq!((0..4).map(first).collect::<Vec<_>>(), [0, 1, 2, 0]);
        session.move_back(&[places[1], places[0]]);
        assert_eq!(session.partitions, [places[2], places[1], places[0]]);
        session.change([places[0]], &places[..2]);
        assert_eq!(session.partitions, places[2..]);
    }
}
