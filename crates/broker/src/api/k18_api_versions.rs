//! ApiVersions (18): what is served.

use std::ops::RangeInclusive;

use sharegroup_wire::message::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use sharegroup_wire::{BrokerId, ErrorCode};

use super::{APIS, Reply, Serve};
use crate::model::{Call, Model};

/// Features with their levels: share groups with dead letters (KIP-932, KIP-1191), transactions
/// whose partitions Produce adds (KIP-890).
const FEATURES: [(&str, i16); 2] = [("share.version", 2), ("transaction.version", 2)];

impl Serve for ApiVersionsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=5;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<ApiVersionsResponse> {
        let other_cluster = self
            .cluster_id
            .as_ref()
            .is_some_and(|id| *id != model.cluster_id.to_string());
        let other_broker = self.node_id != BrokerId::NONE && self.node_id != call.broker;
        if call.version >= 5 && (other_cluster || other_broker) {
            return Reply::Now(self.refuse(call, ErrorCode::RebootstrapRequired));
        }
        Reply::Now(ApiVersionsResponse {
            api_keys: APIS.iter().map(advertised).collect(),
            supported_features: FEATURES
                .iter()
                // Up to version 3 a client could not read a range that begins with 0.
                .filter(|_| call.version >= 4)
                .map(|(name, level)| SupportedFeatureKey {
                    name: (*name).to_owned(),
                    min_version: 0,
                    max_version: *level,
                })
                .collect(),
            finalized_features_epoch: 1,
            finalized_features: FEATURES
                .iter()
                .map(|(name, level)| FinalizedFeatureKey {
                    name: (*name).to_owned(),
                    max_version_level: *level,
                    min_version_level: *level,
                })
                .collect(),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> ApiVersionsResponse {
        ApiVersionsResponse {
            error_code: error,
            ..Default::default()
        }
    }
}

fn advertised(api: &super::Api) -> ApiVersion {
    ApiVersion {
        api_key: api.key,
        // Old librdkafka wants to see version 0 of Produce, and Kafka shows it.
        min_version: if api.key == 0 {
            0
        } else {
            *api.versions.start()
        },
        max_version: *api.versions.end(),
    }
}

/// The answer, in version 0, to a version that isn't known.
pub(super) fn unknown_version() -> ApiVersionsResponse {
    let own = APIS
        .iter()
        .filter(|api| api.key == ApiVersionsRequest::API_KEY);
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion,
        api_keys: own.map(advertised).collect(),
        ..Default::default()
    }
}
