//! SaslHandshake (17): PLAIN, where users are configured.

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};

use super::{Reply, Serve};
use crate::model::links::SaslState;
use crate::model::{Call, Model};

/// The only mechanism here.
const PLAIN: &str = "PLAIN";

impl Serve for SaslHandshakeRequest {
    const VERSIONS: RangeInclusive<i16> = 1..=1;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<SaslHandshakeResponse> {
        if model.users.is_empty() {
            return Reply::Now(self.refuse(call, ErrorCode::IllegalSaslState));
        }
        if self.mechanism != PLAIN {
            return Reply::Now(self.refuse(call, ErrorCode::UnsupportedSaslMechanism));
        }
        model.set_sasl(call.link, SaslState::Handshaken);
        Reply::Now(self.refuse(call, ErrorCode::None))
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> SaslHandshakeResponse {
        SaslHandshakeResponse {
            error_code: error,
            mechanisms: vec![PLAIN.to_owned()],
        }
    }
}
