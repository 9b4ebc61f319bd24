//! InitProducerId (22).

use std::ops::RangeInclusive;
use std::time::Duration;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use super::{Reply, Serve};
use crate::model::{Call, Model};

impl Serve for InitProducerIdRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=5;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<InitProducerIdResponse> {
        let Some(id) = &self.transactional_id else {
            return Reply::Now(given((model.next_producer_id(), 0)));
        };
        if model.coordinator(id) != call.broker {
            return Reply::Now(self.refuse(call, ErrorCode::NotCoordinator));
        }
        let timeout = u64::try_from(self.transaction_timeout_ms).unwrap_or(0);
        let expected = (self.producer_id, self.producer_epoch);
        let timeout = Duration::from_millis(timeout);
        Reply::Now(
            match model.init_transactions(call.now, id, timeout, expected) {
                Ok(producer) => given(producer),
                Err(error) => self.refuse(call, error),
            },
        )
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> InitProducerIdResponse {
        InitProducerIdResponse {
            error_code: error,
            producer_epoch: -1,
            ..Default::default()
        }
    }
}

fn given((producer_id, producer_epoch): (i64, i16)) -> InitProducerIdResponse {
    InitProducerIdResponse {
        producer_id,
        producer_epoch,
        ..Default::default()
    }
}
