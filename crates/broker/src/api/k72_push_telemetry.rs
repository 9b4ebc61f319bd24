//! PushTelemetry (72): kept for whoever looks at the model.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for PushTelemetryRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=0;

    fn serve(self, model: &mut Model, _: &Call) -> Reply<PushTelemetryResponse> {
        Reply::Now(PushTelemetryResponse {
            error_code: model.telemetry.push(self),
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> PushTelemetryResponse {
        PushTelemetryResponse {
            error_code: error,
            ..Default::default()
        }
    }
}
