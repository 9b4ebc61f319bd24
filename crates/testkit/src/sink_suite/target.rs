//! The seam of the suite: what the author of a sink tells it about the target.

use std::fmt;
use std::future::{Future, ready};
use std::time::Duration;

use sharegroup_sink::{OwnedRecord, Registry};

/// The target of a sink, as the suite plays with it: started, broken, mended, read back.
///
/// Only what a target really can is asked of it: a method that answers [`TargetError::CantPlay`] has its
/// checks printed as `skipped` with that reason, never left out silently.
pub trait Target: Send {
    /// What the sink promises.
    fn promises(&self) -> Promises;

    /// A registry with the sink under test.
    fn registry(&self) -> Registry;

    /// Makes an empty destination for records of `topic`: the target is up, answers fast, has room and takes the
    /// credentials of [`Target::properties`]. Called before each check; whatever was done to the target
    /// before is over. Names of topics are made of `a-z`, `0-9` and `_`.
    ///
    /// # Errors
    /// [`TargetError`]: the check fails, or is skipped.
    fn start(&mut self, topic: &str) -> impl Future<Output = Result<(), TargetError>> + Send;

    /// The connector's keys that lead to the destination that was started last: `connector.class`, where to
    /// write, credentials, converters. The suite adds `name`, `topics`, `tasks.max`, `share.group.id` and
    /// `errors.*`.
    fn properties(&self) -> Vec<(String, String)>;

    /// A record that the target takes, from which [`Target::read_back`] tells its number. Key, value and
    /// headers count; offset, timestamp and delivery count are the suite's.
    fn good_record(&self, recipe: &Recipe) -> OwnedRecord;

    /// A record that the target refuses for good, whatever else is written with it. Where keys count, it has the
    /// recipe's.
    ///
    /// # Errors
    /// [`TargetError::CantPlay`], as by default: the target takes everything.
    fn bad_record(&self, recipe: &Recipe) -> Result<OwnedRecord, TargetError> {
        let _ = recipe;
        Err(TargetError::cant_play("the target refuses no record"))
    }

    /// Everything that the destination holds, once everything that was written can be seen. Asked only while
    /// the target is whole.
    ///
    /// # Errors
    /// [`TargetError`]: the check fails, or is skipped.
    fn read_back(&mut self) -> impl Future<Output = Result<Vec<Arrived>, TargetError>> + Send;

    /// Brings trouble to the target, until [`Target::mend`] is called.
    ///
    /// # Errors
    /// [`TargetError::CantPlay`], as by default: it can't be had here, for this reason.
    fn trouble(
        &mut self,
        trouble: Trouble,
    ) -> impl Future<Output = Result<(), TargetError>> + Send {
        ready(Err(TargetError::cant_play(format!(
            "the target can't be {trouble} here"
        ))))
    }

    /// Ends the trouble: the destination is reachable again, and holds what it held.
    ///
    /// # Errors
    /// [`TargetError`]: the check fails.
    fn mend(&mut self) -> impl Future<Output = Result<(), TargetError>> + Send {
        ready(Ok(()))
    }

    /// Keys that replace those of [`Target::properties`] and with which the target lets nobody in.
    ///
    /// # Errors
    /// [`TargetError::CantPlay`], as by default: it lets everybody in.
    fn wrong_credentials(&self) -> Result<Vec<(String, String)>, TargetError> {
        Err(TargetError::cant_play("the target knows no credentials"))
    }

    /// Texts that must be printed nowhere: the passwords and tokens of [`Target::properties`] and
    /// [`Target::wrong_credentials`], long enough not to be printed by chance. None by default.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Stops the target and cleans up. Called once, at the end.
    fn stop(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

/// What a sink promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promises {
    /// What redelivery leaves.
    pub delivery: Delivery,
    /// Who is told of a record that the target refuses.
    pub refusals: Refusals,
}

impl Promises {
    /// Of a sink that names the record that the target refuses.
    #[must_use]
    pub const fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            refusals: Refusals::Named,
        }
    }

    /// The same with other refusals.
    #[must_use]
    pub const fn refusals(mut self, refusals: Refusals) -> Self {
        self.refusals = refusals;
        self
    }
}

/// What the destination holds once records were delivered again, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// Each record at least once.
    AtLeastOnce,
    /// Each record once: topic, partition and offset are its identity.
    IdempotentById,
    /// For each key one record: the one with the highest offset, also where an older one is written later.
    IdempotentByKey,
}

/// What a sink says of a put in which the target refuses one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusals {
    /// Which record that is ([`Outcome::Refused`](sharegroup_sink::Outcome::Refused)).
    Named,
    /// No more than that the put failed ([`PutError::Fatal`](sharegroup_sink::PutError::Fatal)): the runtime takes the batch apart.
    WholePut,
}

/// What a good record is to be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recipe {
    /// Its number: each record of a check has its own.
    pub number: u64,
    /// Number of its key. Records of one key are versions of one thing to a sink that is idempotent by key.
    pub key: u64,
    /// About how many bytes its value should have, at least; 0 for as many as it needs.
    pub bytes: usize,
}

impl Recipe {
    /// A small record with a key of its own.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        Self {
            number,
            key: number,
            bytes: 0,
        }
    }
}

/// A record in the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrived {
    /// Its number.
    pub number: u64,
    /// How often it is there.
    pub times: u64,
}

/// What is wrong with a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// Nothing answers: the process is stopped, connections are cut, a path leads nowhere.
    Down,
    /// New connections are refused; those that are there go on.
    Refusing,
    /// What is written takes two seconds or more.
    Slow,
    /// It takes what is sent, connections as well, and says nothing; what is asked of it meanwhile it may do later.
    Silent,
    /// It has no room for more.
    Full,
    /// It goes away and comes back at once: the trouble is over, and connections are dead, when the call returns.
    Restarted,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Down,
        Self::Refusing,
        Self::Slow,
        Self::Silent,
        Self::Full,
        Self::Restarted,
    ];
}

/// As the end of "the target is".
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Refusing => "refusing connections",
            Self::Slow => "slow",
            Self::Silent => "silent",
            Self::Full => "full",
            Self::Restarted => "restarted",
        })
    }
}

/// Why a target doesn't do what the suite wants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It can't by its nature, or not here: the check is skipped.
    #[error("{0}")]
    CantPlay(String),
    /// Something went wrong: the check fails.
    #[error("{0}")]
    Broken(String),
}

impl TargetError {
    /// It can't, for this reason.
    pub fn cant_play(why: impl Into<String>) -> Self {
        Self::CantPlay(why.into())
    }

    /// Something went wrong.
    pub fn broken(error: impl fmt::Display) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<std::io::Error> for TargetError {
    fn from(error: std::io::Error) -> Self {
        Self::broken(error)
    }
}

/// How long a target that is [`Trouble::Slow`] takes at least.
pub const SLOW: Duration = Duration::from_secs(2);
