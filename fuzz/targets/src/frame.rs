//! Frames and headers.
//!
//! Input: key and version of a request that was sent, and a frame without its size.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use sharegroup_wire::frame::{
    RequestHeader, decode_response, encode_response, response_correlation_id,
};
use sharegroup_wire::message::Request;
use sharegroup_wire::primitive::Reader;

use crate::allocation::{of_message, within};
use crate::message::{Kind, for_api};

/// The frame as a request to a broker, and as the answer to a request.
pub fn frame(data: &[u8]) {
    let Some((kind, frame)) = Kind::take(data) else {
        return;
    };
    let frame = Bytes::copy_from_slice(frame);
    request(&frame);
    for_api!(kind.key, response(kind.version, &frame));
}

fn is_flexible(key: i16, version: i16) -> bool {
    fn of<R: Request>(version: i16) -> bool {
        R::is_flexible(version)
    }
    for_api!(key, of(version)).unwrap_or(false)
}

fn request(frame: &Bytes) {
    let mut reader = Reader::new(frame);
    let header = within(of_message(frame.len()), || {
        RequestHeader::decode(&mut reader, is_flexible)
    });
    let Ok(header) = header else { return };
    let mut again = BytesMut::new();
    header.encode(is_flexible(header.api_key, header.api_version), &mut again);
    let again = again.freeze();
    let mut reader = Reader::new(&again);
    let decoded = RequestHeader::decode(&mut reader, is_flexible);
    assert_eq!(decoded.as_ref(), Ok(&header));
    assert_eq!(reader.left(), 0);
}

fn response<R: Request<Response: PartialEq + Debug>>(version: i16, frame: &Bytes) {
    let id = response_correlation_id(frame);
    let decoded = within(of_message(frame.len()), || {
        decode_response::<R>(frame, version)
    });
    let Ok(value) = decoded else { return };
    let id = id.expect("a frame that can be decoded has an id");
    let again = encode_response::<R>(&value, version, id);
    let size = u32::try_from(again.len() - 4).expect("frames are small");
    assert_eq!(again[..4], size.to_be_bytes());
    let again = again.slice(4..);
    assert_eq!(response_correlation_id(&again), Ok(id));
    assert_eq!(decode_response::<R>(&again, version), Ok(value));
}
