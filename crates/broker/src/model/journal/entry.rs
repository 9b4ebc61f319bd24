//! Entries and their encoding: Kafka's primitives, compact lengths.

use bytes::{BufMut, Bytes, BytesMut};
use sharegroup_wire::primitive::{Context, Reader, Wire};
use sharegroup_wire::{BrokerId, DecodeError, TopicId};

use crate::model::log::{Aborted, Appended};
use crate::model::producer_state::Sequence;
use crate::model::share_partition::{Stored, StoredRange, StoredRecordState};

const CONTEXT: Context = Context {
    version: 0,
    flexible: true,
    nullable: false,
};

/// Encodes structs field by field.
macro_rules! wire {
    ($( $name:ident { $($field:ident),+ } )+) => {$(
        impl Wire for $name {
            fn bytes_min(_: Context) -> usize {
                1
            }

            fn write(&self, context: Context, out: &mut BytesMut) {
                $( self.$field.write(context, out); )+
            }

            fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self { $( $field: Wire::read(context, reader)?, )+ })
            }
        }
    )+};
}

/// Declares the entries, each with the byte that it begins with.
macro_rules! entries {
    ($(
        $(#[$meta:meta])*
        $kind:literal $name:ident { $( $(#[$field_meta:meta])* $field:ident : $type:ty, )+ }
    )+) => {
        /// A change of the state that outlives the process.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Entry {$(
            $(#[$meta])*
            $name { $( $(#[$field_meta])* $field: $type, )+ },
        )+}

        impl Entry {
            /// Appends the entry.
            pub fn encode(&self, out: &mut BytesMut) {
                match self {$(
                    Self::$name { $($field),+ } => {
                        out.put_u8($kind);
                        $( $field.write(CONTEXT, out); )+
                    }
                )+}
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let [kind] = reader.array()?;
                match kind {
                    $( $kind => Ok(Self::$name { $( $field: Wire::read(CONTEXT, reader)?, )+ }), )+
                    _ => Err(DecodeError::UnknownVersion {
                        api: "journal entry",
                        version: i16::from(kind),
                    }),
                }
            }
        }
    };
}

entries! {
    /// The cluster was made.
    1 Cluster {
        /// Its id.
        cluster_id: TopicId,
    }
    /// Ids were given away. None is given twice, also where the seed is the same after a restart.
    2 Ids {
        /// State of what makes random ids.
        random: [u8; 8],
        /// The last producer id.
        last_producer_id: i64,
    }
    /// A topic was made or changed.
    3 Topic {
        /// Its id.
        topic_id: TopicId,
        /// Its name.
        name: String,
        /// Its configuration.
        values: Vec<Value>,
        /// Its partitions.
        partitions: Vec<PartitionMeta>,
    }
    /// A topic was deleted.
    4 TopicDeleted {
        /// Its id.
        topic_id: TopicId,
    }
    /// The brokers' configuration was changed.
    5 BrokerConfig {
        /// All of it.
        values: Vec<Value>,
    }
    /// A group's configuration was changed.
    6 GroupConfig {
        /// The group.
        group_id: String,
        /// All of it.
        values: Vec<Value>,
    }
    /// A batch was appended to a log.
    7 Batch {
        /// The topic.
        topic_id: TopicId,
        /// The partition.
        partition: i32,
        /// The batch as it lies in the log.
        bytes: Bytes,
    }
    /// A log begins later than before.
    8 LogStart {
        /// The topic.
        topic_id: TopicId,
        /// The partition.
        partition: i32,
        /// Its first offset.
        start_offset: i64,
    }
    /// What a log knows beside its batches; stands behind them in a snapshot.
    9 LogState {
        /// The topic.
        topic_id: TopicId,
        /// The partition.
        partition: i32,
        /// First offset that is still there.
        start_offset: i64,
        /// The next offset.
        end_offset: i64,
        /// Its producers.
        producers: Vec<ProducerMeta>,
        /// Aborted transactions.
        aborted: Vec<Aborted>,
    }
    /// A transactional id has another producer, or its transaction another extent.
    10 Transaction {
        /// The transactional id.
        transactional_id: String,
        /// The producer.
        producer_id: i64,
        /// Its epoch.
        producer_epoch: i16,
        /// How long a transaction may stay open.
        timeout_ms: i64,
        /// When the open transaction began, in milliseconds since 1970; −1 = none is open.
        began_ms: i64,
        /// Its partitions.
        places: Vec<PlaceMeta>,
    }
    /// A group was made, or its epoch went up.
    11 Group {
        /// The group.
        group_id: String,
        /// Its epoch.
        epoch: i32,
    }
    /// A group was deleted.
    12 GroupDeleted {
        /// The group.
        group_id: String,
    }
    /// The share state of partitions exists from now on.
    13 ShareStateInitialized {
        /// The group.
        group_id: String,
        /// The partitions.
        places: Vec<PlaceMeta>,
    }
    /// The share state of a partition was written.
    14 ShareState {
        /// The group.
        group_id: String,
        /// The topic.
        topic_id: TopicId,
        /// The partition.
        partition: i32,
        /// What the share coordinator tells of it.
        stored: Stored,
        /// The first offset that isn't settled.
        start_offset: i64,
        /// What is known of the offsets from there on.
        ranges: Vec<StoredRange>,
    }
    /// A group's share state of a topic was deleted.
    15 ShareStateDeleted {
        /// The group.
        group_id: String,
        /// The topic.
        topic_id: TopicId,
    }
    /// A consumer group has committed an offset.
    16 OffsetCommitted {
        /// The group.
        group_id: String,
        /// The topic.
        topic_id: TopicId,
        /// The partition.
        partition: i32,
        /// Offset of the next record to read.
        offset: i64,
        /// Leader epoch of the last record read; −1 = unknown.
        leader_epoch: i32,
        /// Kept with it.
        metadata: String,
    }
}

impl Entry {
    /// Reads entries up to the end.
    ///
    /// # Errors
    /// [`DecodeError`]: they are not of this format.
    pub fn decode_all(bytes: &Bytes) -> Result<Vec<Self>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut entries = Vec::new();
        while reader.left() > 0 {
            entries.push(Self::read(&mut reader)?);
        }
        Ok(entries)
    }
}

/// A configuration key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}

/// A partition without its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionMeta {
    /// Who leads it.
    pub leader: BrokerId,
    /// Rises with each leader.
    pub leader_epoch: i32,
    /// Who is said to have a copy.
    pub replicas: Vec<BrokerId>,
}

/// A partition by topic id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceMeta {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: i32,
}

/// A producer of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerMeta {
    /// Its id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// Its last batches.
    pub batches: Vec<Sequence>,
    /// First offset of its open transaction; −1 = none is open.
    pub open_from: i64,
}

wire! {
    Value { key, value }
    PartitionMeta { leader, leader_epoch, replicas }
    PlaceMeta { topic_id, partition }
    ProducerMeta { producer_id, epoch, batches, open_from }
    Sequence { first, last, appended }
    Appended { base_offset, log_append_time_ms }
    Aborted { producer_id, first_offset, last_offset }
    Stored { start_offset, delivery_complete_count }
    StoredRange { first_offset, last_offset, state, delivery_count }
}

impl Wire for StoredRecordState {
    fn bytes_min(_: Context) -> usize {
        1
    }

    /// The numbers of Kafka's `RecordState`.
    fn write(&self, context: Context, out: &mut BytesMut) {
        let number: i8 = match self {
            Self::Available => 0,
            Self::Acknowledged => 2,
            Self::Archived => 4,
        };
        number.write(context, out);
    }

    fn read(context: Context, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match i8::read(context, reader)? {
            0 => Ok(Self::Available),
            2 => Ok(Self::Acknowledged),
            4 => Ok(Self::Archived),
            number => Err(DecodeError::UnknownVersion {
                api: "record state",
                version: i16::from(number),
            }),
        }
    }
}
