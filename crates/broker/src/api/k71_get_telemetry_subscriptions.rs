//! GetTelemetrySubscriptions (71): what is wanted of the client's metrics. By default nothing, as a broker
//! answers that has no receiver of metrics: ask again in five minutes.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for GetTelemetrySubscriptionsRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=0;

    fn serve(self, model: &mut Model, _: &Call) -> Reply<GetTelemetrySubscriptionsResponse> {
        let client_instance_id = if self.client_instance_id.is_zero() {
            model.random_id()
        } else {
            self.client_instance_id
        };
        model.telemetry.asked += 1;
        let wanted = model.telemetry.subscription.clone();
        Reply::Now(GetTelemetrySubscriptionsResponse {
            client_instance_id,
            subscription_id: wanted.id,
            accepted_compression_types: wanted.compression_types,
            push_interval_ms: wanted.push_interval_ms,
            telemetry_max_bytes: wanted.bytes_max,
            delta_temporality: wanted.is_delta,
            requested_metrics: wanted.metrics,
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
