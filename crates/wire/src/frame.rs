//! Frames and headers: `int32 size`, header, body.
//!
//! Request header v2 and response header v1 belong to flexible versions, v1 and v0 to the older
//! ones. Two exceptions: the client id keeps its two-byte length in every header, and the answer to
//! ApiVersions always has header v0, so that a client can read it before anything is negotiated.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::DecodeError;
use crate::id::CorrelationId;
use crate::message::{Message, Request};
use crate::primitive::{Context, Reader, Wire, write_uvarint};

/// ApiVersions, whose answers never have a flexible header.
const API_VERSIONS_KEY: i16 = 18;

/// Header of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API's key.
    pub api_key: i16,
    /// Version of the body.
    pub api_version: i16,
    /// Comes back in the response.
    pub correlation_id: CorrelationId,
    /// Name of the client, for the broker's logs and quotas.
    pub client_id: Option<String>,
}

impl RequestHeader {
    /// Appends the header; `flexible` tells whether the body is.
    pub fn encode(&self, flexible: bool, out: &mut BytesMut) {
        let context = Context { version: 0, flexible: false, nullable: true };
        self.api_key.write(context, out);
        self.api_version.write(context, out);
        self.correlation_id.0.write(context, out);
        self.client_id.write(context, out);
        if flexible {
            write_uvarint(0, out);
        }
    }

    /// Reads the header. `is_flexible` tells of an API key and version whether its body is.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are not a header.
    pub fn decode(reader: &mut Reader<'_>, is_flexible: impl Fn(i16, i16) -> bool) -> Result<Self, DecodeError> {
        let context = Context { version: 0, flexible: false, nullable: true };
        let header = Self {
            api_key: Wire::read(context, reader)?,
            api_version: Wire::read(context, reader)?,
            correlation_id: CorrelationId(Wire::read(context, reader)?),
            client_id: Wire::read(context, reader)?,
        };
        if is_flexible(header.api_key, header.api_version) {
            reader.tagged_fields(|_, _| Ok(false))?;
        }
        Ok(header)
    }
}

/// A whole request frame, size included.
#[must_use]
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: CorrelationId,
    client_id: Option<&str>,
) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    out.put_i32(0);
    let header = RequestHeader {
        api_key: R::KEY,
        api_version: version,
        correlation_id,
        client_id: client_id.map(str::to_owned),
    };
    header.encode(R::is_flexible(version), &mut out);
    request.encode(version, &mut out);
    with_size(out)
}

/// A whole response frame, size included: the broker's half, for test brokers.
#[must_use]
pub fn encode_response<R: Request>(response: &R::Response, version: i16, correlation_id: CorrelationId) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    out.put_i32(0);
    out.put_i32(correlation_id.0);
    if response_header_is_flexible::<R>(version) {
        write_uvarint(0, &mut out);
    }
    response.encode(version, &mut out);
    with_size(out)
}

fn with_size(mut frame: BytesMut) -> Bytes {
    // INVARIANT: the first four bytes were reserved for the size by the caller.
    debug_assert!(frame.len() >= 4);
    let size = u32::try_from(frame.len().saturating_sub(4)).unwrap_or(u32::MAX);
    for (byte, value) in frame.iter_mut().zip(size.to_be_bytes()) {
        *byte = value;
    }
    frame.freeze()
}

/// The correlation id of a response frame (without its size).
///
/// # Errors
/// [`DecodeError::Truncated`].
pub fn response_correlation_id(frame: &Bytes) -> Result<CorrelationId, DecodeError> {
    Reader::new(frame).array().map(|bytes| CorrelationId(i32::from_be_bytes(bytes)))
}

/// Decodes a response frame (without its size) to its last byte.
///
/// # Errors
/// [`DecodeError`] when the bytes are not a legal answer of that version.
pub fn decode_response<R: Request>(frame: &Bytes, version: i16) -> Result<R::Response, DecodeError> {
    let mut reader = Reader::new(frame);
    reader.array::<4>()?;
    if response_header_is_flexible::<R>(version) {
        reader.tagged_fields(|_, _| Ok(false))?;
    }
    let body = frame.slice(reader.position()..);
    R::Response::from_bytes(&body, version)
}

fn response_header_is_flexible<R: Request>(version: i16) -> bool {
    R::KEY != API_VERSIONS_KEY && R::is_flexible(version)
}
