//! Every message of the crate, without its type: what the tests walk over.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test's own failures")]

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sharegroup_wire::DecodeError;
use sharegroup_wire::message::add_partitions_to_txn::AddPartitionsToTxnRequest;
use sharegroup_wire::message::alter_share_group_offsets::AlterShareGroupOffsetsRequest;
use sharegroup_wire::message::api_versions::ApiVersionsRequest;
use sharegroup_wire::message::create_partitions::CreatePartitionsRequest;
use sharegroup_wire::message::create_topics::CreateTopicsRequest;
use sharegroup_wire::message::delete_groups::DeleteGroupsRequest;
use sharegroup_wire::message::delete_share_group_offsets::DeleteShareGroupOffsetsRequest;
use sharegroup_wire::message::delete_topics::DeleteTopicsRequest;
use sharegroup_wire::message::describe_cluster::DescribeClusterRequest;
use sharegroup_wire::message::describe_configs::DescribeConfigsRequest;
use sharegroup_wire::message::describe_groups::DescribeGroupsRequest;
use sharegroup_wire::message::describe_share_group_offsets::DescribeShareGroupOffsetsRequest;
use sharegroup_wire::message::describe_topic_partitions::DescribeTopicPartitionsRequest;
use sharegroup_wire::message::end_txn::EndTxnRequest;
use sharegroup_wire::message::fetch::FetchRequest;
use sharegroup_wire::message::find_coordinator::FindCoordinatorRequest;
use sharegroup_wire::message::get_telemetry_subscriptions::GetTelemetrySubscriptionsRequest;
use sharegroup_wire::message::incremental_alter_configs::IncrementalAlterConfigsRequest;
use sharegroup_wire::message::init_producer_id::InitProducerIdRequest;
use sharegroup_wire::message::list_config_resources::ListConfigResourcesRequest;
use sharegroup_wire::message::list_groups::ListGroupsRequest;
use sharegroup_wire::message::list_offsets::ListOffsetsRequest;
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::message::offset_commit::OffsetCommitRequest;
use sharegroup_wire::message::offset_fetch::OffsetFetchRequest;
use sharegroup_wire::message::produce::ProduceRequest;
use sharegroup_wire::message::push_telemetry::PushTelemetryRequest;
use sharegroup_wire::message::sasl_authenticate::SaslAuthenticateRequest;
use sharegroup_wire::message::sasl_handshake::SaslHandshakeRequest;
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::ShareFetchRequest;
use sharegroup_wire::message::share_group_describe::ShareGroupDescribeRequest;
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use sharegroup_wire::message::{Message, Request};

/// A decoded body.
pub(crate) trait Body {
    fn to_json(&self, version: i16) -> String;
    fn to_bytes(&self, version: i16) -> Bytes;
}

impl<M: Message> Body for M {
    fn to_json(&self, version: i16) -> String {
        Message::to_json(self, version)
    }

    fn to_bytes(&self, version: i16) -> Bytes {
        Message::to_bytes(self, version)
    }
}

/// Decodes a body of a version.
pub(crate) type Decode = fn(&Bytes, i16) -> Result<Box<dyn Body>, DecodeError>;

/// One message: the request or the response of an API.
#[derive(Clone)]
pub(crate) struct Kind {
    /// As the vectors name it: `MetadataRequest`.
    pub(crate) name: String,
    pub(crate) key: i16,
    pub(crate) versions: RangeInclusive<i16>,
    pub(crate) decode: Decode,
}

fn decode<M: Message + 'static>(body: &Bytes, version: i16) -> Result<Box<dyn Body>, DecodeError> {
    M::from_bytes(body, version).map(|message| Box::new(message) as Box<dyn Body>)
}

fn kind<M: Message + 'static>(key: i16, direction: &str) -> Kind {
    Kind {
        name: format!("{}{direction}", M::NAME),
        key,
        versions: M::VERSION_MIN..=M::VERSION_MAX,
        decode: decode::<M>,
    }
}

fn api<R: Request<Response: 'static> + 'static>() -> [Kind; 2] {
    [
        kind::<R>(R::KEY, "Request"),
        kind::<R::Response>(R::KEY, "Response"),
    ]
}

/// All messages.
pub(crate) fn kinds() -> Vec<Kind> {
    [
        api::<AlterShareGroupOffsetsRequest>(),
        api::<ApiVersionsRequest>(),
        api::<CreateTopicsRequest>(),
        api::<DeleteShareGroupOffsetsRequest>(),
        api::<DeleteTopicsRequest>(),
        api::<DescribeClusterRequest>(),
        api::<DescribeConfigsRequest>(),
        api::<DescribeShareGroupOffsetsRequest>(),
        api::<FetchRequest>(),
        api::<FindCoordinatorRequest>(),
        api::<IncrementalAlterConfigsRequest>(),
        api::<InitProducerIdRequest>(),
        api::<ListGroupsRequest>(),
        api::<ListOffsetsRequest>(),
        api::<MetadataRequest>(),
        api::<OffsetCommitRequest>(),
        api::<OffsetFetchRequest>(),
        api::<ProduceRequest>(),
        api::<SaslAuthenticateRequest>(),
        api::<SaslHandshakeRequest>(),
        api::<ShareAcknowledgeRequest>(),
        api::<ShareFetchRequest>(),
        api::<ShareGroupDescribeRequest>(),
        api::<ShareGroupHeartbeatRequest>(),
        api::<AddPartitionsToTxnRequest>(),
        api::<CreatePartitionsRequest>(),
        api::<DeleteGroupsRequest>(),
        api::<DescribeGroupsRequest>(),
        api::<DescribeTopicPartitionsRequest>(),
        api::<EndTxnRequest>(),
        api::<GetTelemetrySubscriptionsRequest>(),
        api::<ListConfigResourcesRequest>(),
        api::<PushTelemetryRequest>(),
    ]
    .concat()
}

/// One line of a vector file.
pub(crate) struct Vector {
    pub(crate) kind: Kind,
    pub(crate) version: i16,
    pub(crate) body: Bytes,
    /// The message as Kafka's own converter prints it.
    pub(crate) json: serde_json::Value,
    /// File and line, for failures.
    pub(crate) place: String,
}

/// The folder in `SHAREGROUP_VECTORS`, else the crate's own copy.
pub(crate) fn vectors_folder() -> PathBuf {
    std::env::var_os("SHAREGROUP_VECTORS").map_or_else(own_vectors, PathBuf::from)
}

/// The crate's own copy.
pub(crate) fn own_vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

/// All vectors of messages in `folder`. Panics on a file, a key or a version that isn't known here.
pub(crate) fn vectors(folder: &Path) -> Vec<Vector> {
    let kinds = kinds();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("vectors in {}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| is_message_file(path))
        .collect();
    files.sort();
    let mut vectors = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let kind = kinds
            .iter()
            .find(|kind| kind.name == name)
            .unwrap_or_else(|| panic!("{name}: no such message here"));
        for (index, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            let place = format!("{name}.jsonl:{}", index + 1);
            let line: serde_json::Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(line["api"], kind.name.as_str(), "{place}");
            assert_eq!(line["key"], kind.key, "{place}");
            let version = i16::try_from(line["version"].as_i64().unwrap()).unwrap();
            assert!(
                kind.versions.contains(&version),
                "{place}: version {version} is not known here"
            );
            vectors.push(Vector {
                kind: kind.clone(),
                version,
                body: from_hex(line["hex"].as_str().unwrap()),
                json: line["json"].clone(),
                place,
            });
        }
    }
    vectors
}

/// The file of record batches.
pub(crate) const BATCHES_FILE: &str = "RecordBatches.jsonl";

/// Whether it is one of messages: any but those of record batches and of Connect's converters and
/// transforms, so that a message that isn't known here is noticed.
fn is_message_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_batches = [BATCHES_FILE, "RecordFixtures.jsonl"].contains(&&*name);
    name.ends_with(".jsonl") && !is_batches && !name.starts_with("connect-")
}

/// Bytes of a hexadecimal text.
pub(crate) fn from_hex(hex: &str) -> Bytes {
    assert!(hex.len().is_multiple_of(2), "odd number of digits");
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}
