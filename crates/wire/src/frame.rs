//! Frames and headers: `int32 size`, header, body.
//!
//! Request header v2 and response header v1 belong to flexible versions, v1 and v0 to the older
//! ones. Two exceptions: the client id keeps its two-byte length in every header, and the answer to
//! ApiVersions always has header v0, so that a client can read it before anything is negotiated.

use std::io::{self, Read};

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::DecodeError;
use crate::id::CorrelationId;
use crate::limits::FRAME_BYTES_MAX;
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
        let context = Context {
            version: 0,
            flexible: false,
            nullable: true,
        };
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
    pub fn decode(
        reader: &mut Reader<'_>,
        is_flexible: impl Fn(i16, i16) -> bool,
    ) -> Result<Self, DecodeError> {
        let context = Context {
            version: 0,
            flexible: false,
            nullable: true,
        };
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
pub fn encode_response<R: Request>(
    response: &R::Response,
    version: i16,
    correlation_id: CorrelationId,
) -> Bytes {
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

/// Reads one frame, without its size, from a blocking stream.
///
/// # Errors
/// The stream's, and `InvalidData` with [`DecodeError::FrameTooLarge`] above [`FRAME_BYTES_MAX`].
pub fn read_frame(stream: &mut impl Read) -> io::Result<Bytes> {
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = u32::from_be_bytes(size);
    if size as usize > FRAME_BYTES_MAX {
        let error = DecodeError::FrameTooLarge {
            size: size.into(),
            limit: FRAME_BYTES_MAX,
        };
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    let mut frame = Vec::new();
    // Grows with what arrives, not with what the peer claims.
    stream.take(size.into()).read_to_end(&mut frame)?;
    if frame.len() < size as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(frame.into())
}

/// The correlation id of a response frame (without its size).
///
/// # Errors
/// [`DecodeError::Truncated`].
pub fn response_correlation_id(frame: &Bytes) -> Result<CorrelationId, DecodeError> {
    Reader::new(frame)
        .array()
        .map(|bytes| CorrelationId(i32::from_be_bytes(bytes)))
}

/// Decodes a response frame (without its size) to its last byte.
///
/// # Errors
/// [`DecodeError`] when the bytes are not a legal answer of that version.
pub fn decode_response<R: Request>(
    frame: &Bytes,
    version: i16,
) -> Result<R::Response, DecodeError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
    use crate::message::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
    use crate::message::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

    fn find(key: &str) -> FindCoordinatorRequest {
        FindCoordinatorRequest {
            key: key.into(),
            coordinator_keys: vec![key.into()],
            ..Default::default()
        }
    }

    #[test]
    fn request_header_is_version_1_before_flexible_versions_and_2_from_then_on() {
        let old = encode_request(&find("g"), 2, CorrelationId(7), Some("me"));
        assert_eq!(
            old[..],
            *b"\0\0\0\x10\0\x0a\0\x02\0\0\0\x07\0\x02me\0\x01g\0"
        );
        // The client id keeps its two-byte length; one byte for the tagged section follows it.
        let new = encode_request(&find("g"), 4, CorrelationId(7), Some("me"));
        assert_eq!(
            new[..],
            *b"\0\0\0\x12\0\x0a\0\x04\0\0\0\x07\0\x02me\0\0\x02\x02g\0"
        );
        let nameless = encode_request(&find("g"), 2, CorrelationId(7), None);
        assert_eq!(
            nameless[..],
            *b"\0\0\0\x0e\0\x0a\0\x02\0\0\0\x07\xff\xff\0\x01g\0"
        );
    }

    #[test]
    fn request_header_comes_back_from_its_frame() {
        for version in [2, 4] {
            let frame =
                encode_request(&find("orders"), version, CorrelationId(-3), Some("me")).slice(4..);
            let mut reader = Reader::new(&frame);
            let header = RequestHeader::decode(&mut reader, |_, version| {
                FindCoordinatorRequest::is_flexible(version)
            })
            .unwrap();
            let expected = RequestHeader {
                api_key: 10,
                api_version: version,
                correlation_id: CorrelationId(-3),
                client_id: Some("me".into()),
            };
            assert_eq!(header, expected);
            let body = frame.slice(reader.position()..);
            let request = FindCoordinatorRequest::from_bytes(&body, version).unwrap();
            assert_eq!(request.coordinator_keys.is_empty(), version == 2);
            assert_eq!(request.key.is_empty(), version == 4);
        }
    }

    #[test]
    fn response_comes_back_from_its_frame_in_every_version() {
        for version in 0..=6 {
            let response = FindCoordinatorResponse::default();
            let frame =
                encode_response::<FindCoordinatorRequest>(&response, version, CorrelationId(9))
                    .slice(4..);
            assert_eq!(response_correlation_id(&frame), Ok(CorrelationId(9)));
            assert_eq!(
                decode_response::<FindCoordinatorRequest>(&frame, version),
                Ok(response)
            );
        }
        let response = InitProducerIdResponse::default();
        let old = encode_response::<InitProducerIdRequest>(&response, 1, CorrelationId(9));
        let new = encode_response::<InitProducerIdRequest>(&response, 2, CorrelationId(9));
        assert_eq!(
            new.len(),
            old.len() + 2,
            "a tagged section in the header and one in the body"
        );
    }

    #[test]
    fn answer_to_api_versions_never_has_a_flexible_header() {
        let response = ApiVersionsResponse::default();
        let frame =
            encode_response::<ApiVersionsRequest>(&response, 5, CorrelationId(1)).slice(4..);
        assert_eq!(frame[..], *b"\0\0\0\x01\0\0\x01\0\0\0\0\0");
        assert_eq!(
            decode_response::<ApiVersionsRequest>(&frame, 5),
            Ok(response)
        );
    }

    #[test]
    fn tags_of_a_response_header_are_skipped_and_hostile_ones_refused() {
        let body = FindCoordinatorResponse::default().to_bytes(4);
        let sane: Bytes = [&b"\0\0\0\x09\x01\x05\x01\xaa"[..], &body].concat().into();
        assert!(decode_response::<FindCoordinatorRequest>(&sane, 4).is_ok());
        let hostile: Bytes = [&b"\0\0\0\x09\x01\x05\xff\xff\xff\xff\x0f"[..], &body]
            .concat()
            .into();
        assert!(matches!(
            decode_response::<FindCoordinatorRequest>(&hostile, 4),
            Err(DecodeError::CountTooLarge {
                what: "tagged field",
                ..
            })
        ));
    }

    #[test]
    fn a_frame_comes_back_from_a_stream() {
        let frame = encode_request(&find("g"), 2, CorrelationId(7), None);
        let twice = [&frame[..], &frame[..]].concat();
        let mut stream = &twice[..];
        assert_eq!(read_frame(&mut stream).unwrap(), frame[4..]);
        assert_eq!(read_frame(&mut stream).unwrap(), frame[4..]);
        let ended = read_frame(&mut stream).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        let cut = read_frame(&mut &frame[..frame.len() - 1]).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        let hostile = read_frame(&mut &[0xff; 8][..]).unwrap_err();
        assert_eq!(hostile.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_cut_response_frame_is_refused() {
        let frame = encode_response::<FindCoordinatorRequest>(
            &FindCoordinatorResponse::default(),
            4,
            CorrelationId(9),
        )
        .slice(4..);
        for cut in 0..frame.len() {
            assert!(decode_response::<FindCoordinatorRequest>(&frame.slice(..cut), 4).is_err());
        }
    }
}
