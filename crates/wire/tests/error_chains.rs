//! An error says a thing once: what its text includes, its `source` doesn't give again.
#![cfg(feature = "net")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::error::Error;
use std::io::ErrorKind;

use bytes::Bytes;
use sharegroup_wire::message::Message;
use sharegroup_wire::message::metadata::MetadataResponse;
use sharegroup_wire::net::sasl::SaslError;
use sharegroup_wire::net::tls::{StoreError, TlsError};
use sharegroup_wire::net::{Address, CallError, CloseReason, ConnectError};
use sharegroup_wire::record::{BatchError, BatchErrorKind, RecordError, RecordErrorKind};

fn says_everything_once(error: &dyn Error) {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        assert!(
            !text.contains(&cause_text),
            "{text:?} has {cause_text:?} already"
        );
        text = cause_text;
        next = cause.source();
    }
}

#[test]
fn an_error_and_its_sources_say_everything_once() {
    let address = || Address::new("broker", 9092);
    let decode = || MetadataResponse::from_bytes(&Bytes::from_static(&[0xff]), 1).unwrap_err();
    let store = || StoreError::NoKey {
        place: "ssl.keystore.location".into(),
    };
    let sasl = || SaslError::TokenTls {
        endpoint: "https://tokens".into(),
        source: Box::new(TlsError::Store(store())),
    };
    let reasons = || {
        [
            CloseReason::ByPeer,
            CloseReason::Tls(Box::new(TlsError::Store(store()))),
            CloseReason::Authentication(Box::new(sasl())),
            CloseReason::Frame(decode()),
            CloseReason::Io {
                kind: ErrorKind::ConnectionReset,
                text: "connection reset".into(),
            },
            CloseReason::Decode {
                api: "Metadata",
                source: decode(),
            },
        ]
    };
    says_everything_once(&sasl());
    says_everything_once(&SaslError::Decode {
        api: "SaslAuthenticate",
        source: decode(),
    });
    says_everything_once(&ConnectError::Tls {
        address: address(),
        source: Box::new(TlsError::Store(store())),
    });
    says_everything_once(&ConnectError::Authentication {
        address: address(),
        source: Box::new(sasl()),
    });
    says_everything_once(&CallError::PeerMisbehaved {
        address: address(),
        api: "Metadata",
        version: 1,
        source: decode(),
    });
    for reason in reasons() {
        says_everything_once(&reason);
        says_everything_once(&ConnectError::Closed {
            address: address(),
            reason: reason.clone(),
        });
        says_everything_once(&CallError::NotConnected {
            address: address(),
            api: "Metadata",
            reason: reason.clone(),
        });
        says_everything_once(&CallError::ConnectionLost {
            address: address(),
            api: "Metadata",
            reason,
        });
    }
    let record = RecordError {
        index: 1,
        position: 2,
        kind: RecordErrorKind::Truncated,
    };
    says_everything_once(&record);
    says_everything_once(&BatchError {
        base_offset: 0,
        last_offset: None,
        bytes: Default::default(),
        kind: BatchErrorKind::Record(record),
    });
}
