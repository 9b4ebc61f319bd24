//! SaslAuthenticate (36): PLAIN (RFC 4616).

use std::ops::RangeInclusive;

use sharegroup_wire::ErrorCode;
use sharegroup_wire::message::sasl_authenticate::{
    SaslAuthenticateRequest, SaslAuthenticateResponse,
};

use super::{Reply, Serve};
use crate::model::links::SaslState;
use crate::model::{Call, Model};

impl Serve for SaslAuthenticateRequest {
    const VERSIONS: RangeInclusive<i16> = 0..=2;

    fn serve(self, model: &mut Model, call: &Call) -> Reply<SaslAuthenticateResponse> {
        if model.sasl(call.link) == SaslState::Initial {
            return Reply::Now(self.refuse(call, ErrorCode::IllegalSaslState));
        }
        let Some(user) = user(model, &self.auth_bytes.0) else {
            return Reply::Now(self.refuse(call, ErrorCode::SaslAuthenticationFailed));
        };
        model.set_sasl(call.link, SaslState::Authenticated(user));
        Reply::Now(SaslAuthenticateResponse::default())
    }

    fn refuse(&self, _: &Call, error: ErrorCode) -> SaslAuthenticateResponse {
        let text = match error {
            ErrorCode::SaslAuthenticationFailed => {
                "Authentication failed: Invalid username or password"
            }
            _ => {
                "SaslAuthenticate request received after successful authentication or before a handshake"
            }
        };
        SaslAuthenticateResponse {
            error_code: error,
            error_message: Some(text.to_owned()),
            ..Default::default()
        }
    }
}

/// The user whose name and password these are: `[authzid] NUL authcid NUL passwd`.
fn user(model: &Model, message: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(message).ok()?;
    let mut parts = text.split('\0');
    let (identity, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_own = identity.is_empty() || identity == name;
    let is_right = model.users.get(name).is_some_and(|known| known == password);
    (parts.next().is_none() && is_own && is_right).then(|| name.to_owned())
}
