//! PushTelemetry (72): taken and thrown away.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for PushTelemetryRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=0;

    fn serve(self, _: &mut Model, call: &Call) -> Reply<PushTelemetryResponse> {
        // Nothing was subscribed to but by id 0.
        let error = if self.subscription_id == 0 {
            ErrorCode::None
        } else {
            ErrorCode::UnknownSubscriptionId
        };
        Reply::Now(self.refuse(call, error))
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> PushTelemetryResponse {
        PushTelemetryResponse {
            error_code: error,
            ..Default::default()
        }
    }
}
