//! Every limit of the model in one place: what clients can make it remember, besides records.

/// Most partitions of one topic.
pub const TOPIC_PARTITIONS_MAX: usize = 10_000;

/// Most partitions of all topics; a topic that would exceed them is refused with INVALID_PARTITIONS,
/// or not made where it was only mentioned.
pub const PARTITIONS_MAX: usize = 100_000;

/// Most groups, and most groups with a configuration; a further one is refused with
/// GROUP_MAX_SIZE_REACHED or POLICY_VIOLATION.
pub const GROUPS_MAX: usize = 10_000;

/// Most producers that one partition remembers; with a further one the one that wrote longest ago is
/// forgotten, as Kafka does after `producer.id.expiration.ms`. Open transactions are kept.
pub const PRODUCERS_MAX: usize = 10_000;

/// Most transactional ids; a further one is refused with COORDINATOR_NOT_AVAILABLE.
pub const TRANSACTIONAL_IDS_MAX: usize = 10_000;
