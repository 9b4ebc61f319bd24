//! InitProducerId (22).

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for InitProducerIdRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=5;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<InitProducerIdResponse> {
        if self.transactional_id.is_some() {
            return Reply::Now(self.refuse(call, ErrorCode::TransactionalIdAuthorizationFailed));
        }
        Reply::Now(InitProducerIdResponse {
            producer_id: model.next_producer_id(),
            producer_epoch: 0,
            ..Default::default()
        })
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> InitProducerIdResponse {
        InitProducerIdResponse {
            error_code: error,
            producer_epoch: -1,
            ..Default::default()
        }
    }
}
