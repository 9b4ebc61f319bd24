//! EndTxn (26): commits or aborts; from version 5 on each transaction has an epoch of its own.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::end_txn::{EndTxnRequest, EndTxnResponse};

use super::{Reply, Serve};
use crate::model::{Call, Model};

/// The first version that answers with a new epoch (KIP-890).
const BUMPS_SINCE: i16 = 5;

impl Serve for EndTxnRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=5;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<EndTxnResponse> {
        let id = &self.transactional_id;
        if model.coordinator(id) != call.broker {
            return Reply::Now(self.refuse(call, ErrorCode::NotCoordinator));
        }
        let producer = (self.producer_id, self.producer_epoch);
        let bumps = call.version >= BUMPS_SINCE;
        Reply::Now(
            match model.end_transaction(call.now, id, producer, self.committed, bumps) {
                Ok((producer_id, producer_epoch)) => EndTxnResponse {
                    producer_id,
                    producer_epoch,
                    ..Default::default()
                },
                Err(error) => self.refuse(call, error),
            },
        )
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> EndTxnResponse {
        EndTxnResponse {
            error_code: error,
            ..Default::default()
        }
    }
}
