//! The APIs that are served, one file per key: from a request to its answer.
//!
//! A file is all there is to say of its API: which versions are served, what the model is asked, and
//! how an answer without a result looks.

mod k00_produce;
mod k01_fetch;
mod k02_list_offsets;
mod k03_metadata;
mod k08_offset_commit;
mod k09_offset_fetch;
mod k10_find_coordinator;
mod k15_describe_groups;
mod k16_list_groups;
mod k17_sasl_handshake;
mod k18_api_versions;
mod k19_create_topics;
mod k20_delete_topics;
mod k22_init_producer_id;
mod k24_add_partitions_to_txn;
mod k26_end_txn;
mod k32_describe_configs;
mod k36_sasl_authenticate;
mod k37_create_partitions;
mod k42_delete_groups;
mod k44_incremental_alter_configs;
mod k60_describe_cluster;
mod k71_get_telemetry_subscriptions;
mod k72_push_telemetry;
mod k74_list_config_resources;
mod k75_describe_topic_partitions;
mod k76_share_group_heartbeat;
mod k77_share_group_describe;
mod k78_share_fetch;
mod k79_share_acknowledge;
mod k90_describe_share_group_offsets;
mod k91_alter_share_group_offsets;
mod k92_delete_share_group_offsets;

use std::ops::RangeInclusive;

use bytes::Bytes;
use sharegroup_wire::frame::{RequestHeader, encode_response};
use sharegroup_wire::message::Request;
use sharegroup_wire::message::api_versions::ApiVersionsRequest;
use sharegroup_wire::primitive::Reader;
use sharegroup_wire::{DecodeError, ErrorCode};

use crate::model::topics::Place;
use crate::model::{Call, Model};

/// What a handler says.
#[derive(Debug)]
pub(crate) enum Reply<T> {
    /// This.
    Now(T),
    /// Nothing yet: the request is parked.
    Parked,
    /// Nothing, ever: Produce with `acks` 0.
    Nothing,
    /// The connection is to be closed.
    Close,
}

/// A [`Reply`] as a frame, size included.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Send this.
    Now(Bytes),
    /// Later.
    Parked,
    /// Never.
    Nothing,
    /// Close the connection.
    Close,
}

/// The partitions that a request asks about, each with the API whose faults count for it.
pub(crate) type Touches = Vec<(i16, Place)>;

/// A request that is served.
pub(crate) trait Serve: Request {
    /// Versions that are served; a part of those that Kafka 4.4 has.
    const VERSIONS: RangeInclusive<i16>;

    /// Does what is asked.
    fn serve(self, model: &mut Model, call: &Call) -> Reply<Self::Response>;

    /// Whether the client waits for an answer; where it doesn't, its connection is closed instead of an
    /// error.
    fn wants_answer(&self) -> bool {
        true
    }

    /// The answer where nothing was done because of an error.
    fn refuse(&self, call: &Call, error: ErrorCode) -> Self::Response;

    /// What it asks about.
    fn touches(&self, _model: &Model, _call: &Call) -> Touches {
        Vec::new()
    }
}

/// One API, without its type.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) key: i16,
    pub(crate) name: &'static str,
    pub(crate) versions: RangeInclusive<i16>,
    flexible_since: i16,
    serve: fn(&mut Model, &Call, &Bytes) -> Result<Answer, DecodeError>,
    refuse: fn(&Call, &Bytes, ErrorCode) -> Result<Answer, DecodeError>,
    touches: fn(&Model, &Call, &Bytes) -> Result<Touches, DecodeError>,
}

const fn api<R: Serve>() -> Api {
    Api {
        key: R::KEY,
        name: R::NAME,
        versions: R::VERSIONS,
        flexible_since: R::FLEXIBLE_SINCE,
        serve: serve::<R>,
        refuse: refuse::<R>,
        touches: touches::<R>,
    }
}

fn serve<R: Serve>(model: &mut Model, call: &Call, body: &Bytes) -> Result<Answer, DecodeError> {
    let request = R::from_bytes(body, call.version)?;
    Ok(match request.serve(model, call) {
        Reply::Now(response) => Answer::Now(encode_response::<R>(
            &response,
            call.version,
            call.correlation_id,
        )),
        Reply::Parked => Answer::Parked,
        Reply::Nothing => Answer::Nothing,
        Reply::Close => Answer::Close,
    })
}

fn refuse<R: Serve>(call: &Call, body: &Bytes, error: ErrorCode) -> Result<Answer, DecodeError> {
    let request = R::from_bytes(body, call.version)?;
    if !request.wants_answer() {
        return Ok(Answer::Close);
    }
    Ok(Answer::Now(encode_response::<R>(
        &request.refuse(call, error),
        call.version,
        call.correlation_id,
    )))
}

fn touches<R: Serve>(model: &Model, call: &Call, body: &Bytes) -> Result<Touches, DecodeError> {
    Ok(R::from_bytes(body, call.version)?.touches(model, call))
}

/// All of them, by key.
pub(crate) static APIS: &[Api] = &[
    api::<sharegroup_wire::message::produce::ProduceRequest>(),
    api::<sharegroup_wire::message::fetch::FetchRequest>(),
    api::<sharegroup_wire::message::list_offsets::ListOffsetsRequest>(),
    api::<sharegroup_wire::message::metadata::MetadataRequest>(),
    api::<sharegroup_wire::message::offset_commit::OffsetCommitRequest>(),
    api::<sharegroup_wire::message::offset_fetch::OffsetFetchRequest>(),
    api::<sharegroup_wire::message::find_coordinator::FindCoordinatorRequest>(),
    api::<sharegroup_wire::message::describe_groups::DescribeGroupsRequest>(),
    api::<sharegroup_wire::message::list_groups::ListGroupsRequest>(),
    api::<sharegroup_wire::message::sasl_handshake::SaslHandshakeRequest>(),
    api::<ApiVersionsRequest>(),
    api::<sharegroup_wire::message::create_topics::CreateTopicsRequest>(),
    api::<sharegroup_wire::message::delete_topics::DeleteTopicsRequest>(),
    api::<sharegroup_wire::message::init_producer_id::InitProducerIdRequest>(),
    api::<sharegroup_wire::message::add_partitions_to_txn::AddPartitionsToTxnRequest>(),
    api::<sharegroup_wire::message::end_txn::EndTxnRequest>(),
    api::<sharegroup_wire::message::describe_configs::DescribeConfigsRequest>(),
    api::<sharegroup_wire::message::sasl_authenticate::SaslAuthenticateRequest>(),
    api::<sharegroup_wire::message::create_partitions::CreatePartitionsRequest>(),
    api::<sharegroup_wire::message::delete_groups::DeleteGroupsRequest>(),
    api::<sharegroup_wire::message::incremental_alter_configs::IncrementalAlterConfigsRequest>(),
    api::<sharegroup_wire::message::describe_cluster::DescribeClusterRequest>(),
    api::<sharegroup_wire::message::get_telemetry_subscriptions::GetTelemetrySubscriptionsRequest>(
    ),
    api::<sharegroup_wire::message::push_telemetry::PushTelemetryRequest>(),
    api::<sharegroup_wire::message::list_config_resources::ListConfigResourcesRequest>(),
    api::<sharegroup_wire::message::describe_topic_partitions::DescribeTopicPartitionsRequest>(),
    api::<sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest>(),
    api::<sharegroup_wire::message::share_group_describe::ShareGroupDescribeRequest>(),
    api::<sharegroup_wire::message::share_fetch::ShareFetchRequest>(),
    api::<sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest>(),
    api::<sharegroup_wire::message::describe_share_group_offsets::DescribeShareGroupOffsetsRequest>(
    ),
    api::<sharegroup_wire::message::alter_share_group_offsets::AlterShareGroupOffsetsRequest>(),
    api::<sharegroup_wire::message::delete_share_group_offsets::DeleteShareGroupOffsetsRequest>(),
];

fn find(key: i16) -> Option<&'static Api> {
    APIS.iter().find(|api| api.key == key)
}

/// A request whose header was read.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) header: RequestHeader,
    api: &'static Api,
    body: Bytes,
}

impl Incoming {
    /// Reads a frame's header.
    ///
    /// # Errors
    /// [`DecodeError`], also for an API or a version that isn't served: like Kafka, the broker then
    /// closes the connection. ApiVersions is served in every version.
    pub(crate) fn read(frame: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader, |key, version| {
            find(key).is_some_and(|api| version >= api.flexible_since)
        })?;
        let unknown = DecodeError::UnknownVersion {
            api: "request",
            version: header.api_version,
        };
        let api = find(header.api_key).ok_or_else(|| unknown.clone())?;
        let is_served = api.versions.contains(&header.api_version);
        if !is_served && header.api_key != ApiVersionsRequest::KEY {
            return Err(unknown);
        }
        let body = frame.slice(reader.position()..);
        Ok(Self { header, api, body })
    }

    /// Does what is asked.
    ///
    /// # Errors
    /// [`DecodeError`] of the body.
    pub(crate) fn serve(&self, model: &mut Model, call: &Call) -> Result<Answer, DecodeError> {
        if !self.api.versions.contains(&call.version) {
            let response = k18_api_versions::unknown_version();
            let frame = encode_response::<ApiVersionsRequest>(&response, 0, call.correlation_id);
            return Ok(Answer::Now(frame));
        }
        (self.api.serve)(model, call, &self.body)
    }

    /// What it asks about; nothing where the body can't be read.
    pub(crate) fn touches(&self, model: &Model, call: &Call) -> Touches {
        if !self.api.versions.contains(&call.version) {
            return Vec::new();
        }
        (self.api.touches)(model, call, &self.body).unwrap_or_default()
    }

    /// Answers with an error and does nothing.
    ///
    /// # Errors
    /// [`DecodeError`] of the body.
    pub(crate) fn refuse(&self, call: &Call, error: ErrorCode) -> Result<Answer, DecodeError> {
        (self.api.refuse)(call, &self.body, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apis_are_sorted_by_key() {
        assert!(APIS.is_sorted_by_key(|api| api.key));
    }
}
