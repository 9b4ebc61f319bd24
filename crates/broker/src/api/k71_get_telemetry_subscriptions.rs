//! GetTelemetrySubscriptions (71): as a broker answers that has no receiver of metrics: nothing is
//! wanted, ask again in five minutes.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};

use super::{Reply, Serve};
use crate::model::{Call, Model};

/// Codecs in the order in which Kafka prefers them: zstd, lz4, gzip, snappy.
const COMPRESSION_TYPES: [i8; 4] = [4, 3, 1, 2];

impl Serve for GetTelemetrySubscriptionsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=0;

    fn serve(self, model: &mut Model, _: &Call) -> Reply<GetTelemetrySubscriptionsResponse> {
        let client_instance_id = if self.client_instance_id.is_zero() {
            model.random_id()
        } else {
            self.client_instance_id
        };
        Reply::Now(GetTelemetrySubscriptionsResponse {
            client_instance_id,
            accepted_compression_types: COMPRESSION_TYPES.to_vec(),
            push_interval_ms: 300_000,
            telemetry_max_bytes: 1_048_576,
            delta_temporality: true,
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> GetTelemetrySubscriptionsResponse {
        GetTelemetrySubscriptionsResponse {
            error_code: error,
            ..Default::default()
        }
    }
}
