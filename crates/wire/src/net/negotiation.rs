//! ApiVersions: what the broker speaks, asked before anything else.
//!
//! The newest version known here goes first. A broker that doesn't know it answers UNSUPPORTED_VERSION
//! in the layout of version 0 with the range it knows; then that range decides the second and last
//! try, on the same socket.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use crate::error::DecodeError;
use crate::error_code::ErrorCode;
use crate::frame::decode_response;
use crate::message::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use crate::message::{Message, Request};
use crate::net::connection::{ConnectionOptions, Link};
use crate::net::error::{CallError, CloseReason, ConnectError, ConnectPhase};

/// The versions of one API, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiVersionRange {
    /// Oldest version.
    pub min: i16,
    /// Newest version.
    pub max: i16,
}

impl ApiVersionRange {
    /// The versions of `R` that are known here.
    #[must_use]
    pub const fn of<R: Request>() -> Self {
        Self {
            min: R::VERSION_MIN,
            max: R::VERSION_MAX,
        }
    }

    /// The newest version in both ranges.
    #[must_use]
    pub fn newest_common(self, other: Self) -> Option<i16> {
        let max = self.max.min(other.max);
        (max >= self.min.max(other.min)).then_some(max)
    }
}

impl fmt::Display for ApiVersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else {
            write!(f, "{} to {}", self.min, self.max)
        }
    }
}

/// What a broker said about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NegotiatedVersions {
    apis: BTreeMap<i16, ApiVersionRange>,
    features: BTreeMap<String, i16>,
}

impl NegotiatedVersions {
    fn new(response: &ApiVersionsResponse) -> Self {
        let apis = response.api_keys.iter();
        let features = response.finalized_features.iter();
        Self {
            apis: apis
                .map(|api| {
                    (
                        api.api_key,
                        ApiVersionRange {
                            min: api.min_version,
                            max: api.max_version,
                        },
                    )
                })
                .collect(),
            features: features
                .map(|feature| (feature.name.clone(), feature.max_version_level))
                .collect(),
        }
    }

    /// The broker's versions of the API with this key; `None` = it doesn't know the API.
    #[must_use]
    pub fn range(&self, api_key: i16) -> Option<ApiVersionRange> {
        self.apis.get(&api_key).copied()
    }

    /// Level of a finalized feature of the cluster, such as `share.version`; `None` = off.
    #[must_use]
    pub fn finalized_feature(&self, name: &str) -> Option<i16> {
        self.features.get(name).copied()
    }
}

/// Asks for the broker's versions.
pub(super) async fn negotiate(
    link: &Link,
    options: &ConnectionOptions,
) -> Result<NegotiatedVersions, ConnectError> {
    let request = ApiVersionsRequest {
        client_software_name: options.software_name.clone(),
        client_software_version: options.software_version.clone(),
        ..Default::default()
    };
    let mut version = ApiVersionsRequest::VERSION_MAX;
    let mut response = ask(link, options, &request, version).await?;
    if response.error_code == ErrorCode::UnsupportedVersion {
        let ours = ApiVersionRange::of::<ApiVersionsRequest>();
        let known = response
            .api_keys
            .iter()
            .find(|api| api.api_key == ApiVersionsRequest::KEY);
        // A broker too old to name its range knows version 0.
        let broker = known.map_or(ApiVersionRange { min: 0, max: 0 }, |api| ApiVersionRange {
            min: api.min_version,
            max: api.max_version,
        });
        version = ours
            .newest_common(broker)
            .filter(|next| *next != version)
            .ok_or_else(|| ConnectError::Unsupported {
                address: link.address.clone(),
                ours,
                broker,
            })?;
        response = ask(link, options, &request, version).await?;
    }
    match response.error_code {
        ErrorCode::None => Ok(NegotiatedVersions::new(&response)),
        code => Err(ConnectError::Broker {
            address: link.address.clone(),
            code,
        }),
    }
}

async fn ask(
    link: &Link,
    options: &ConnectionOptions,
    request: &ApiVersionsRequest,
    version: i16,
) -> Result<ApiVersionsResponse, ConnectError> {
    let address = || link.address.clone();
    let frame = link
        .exchange(request, version, options.setup_timeout)
        .await
        .map_err(|error| match error {
            CallError::NotConnected { reason, .. } | CallError::ConnectionLost { reason, .. } => {
                ConnectError::closed(&link.address, reason)
            }
            _ => ConnectError::Timeout {
                address: address(),
                phase: ConnectPhase::ApiVersions,
                after: options.setup_timeout,
            },
        })?;
    decode(&frame, version).map_err(|source| ConnectError::Closed {
        address: address(),
        reason: CloseReason::Decode {
            api: ApiVersionsRequest::NAME,
            source,
        },
    })
}

/// All versions start with the error code, and UNSUPPORTED_VERSION comes in the layout of version 0.
fn decode(frame: &Bytes, version: i16) -> Result<ApiVersionsResponse, DecodeError> {
    let unsupported = ErrorCode::UnsupportedVersion.code().to_be_bytes();
    let version = if frame.get(4..6) == Some(&unsupported) {
        0
    } else {
        version
    };
    decode_response::<ApiVersionsRequest>(frame, version)
}
