//! What the corpora are grown from: the vectors and keys of the wire crate's tests, and texts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use sharegroup_wire::CorrelationId;
use sharegroup_wire::compress::DecompressLimits;
use sharegroup_wire::frame::RequestHeader;
use sharegroup_wire::message::Message;
use sharegroup_wire::record::{BATCH_HEADER_BYTES, RecordBatches};

use crate::message::{Kind, for_api};
use crate::record::inside_of;

/// An input of a target.
#[derive(Debug, Clone)]
pub struct Seed {
    /// The target's name.
    pub target: &'static str,
    /// The input.
    pub input: Vec<u8>,
}

/// All seeds; the same each time.
///
/// # Errors
/// When the test data of the wire crate can't be read.
pub fn seeds() -> io::Result<Vec<Seed>> {
    let mut seeds = Vec::new();
    for file in files(&testdata())? {
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or_default().to_owned();
        if name.ends_with("Request.jsonl") || name.ends_with("Response.jsonl") {
            for line in lines(&file)? {
                of_message(&line, name.ends_with("Response.jsonl"), &mut seeds);
            }
        } else if name.starts_with("Record") {
            for line in lines(&file)? {
                of_records(&bytes_of(&line), &mut seeds);
            }
        }
    }
    let mut stores = files(&testdata().join("tls"))?;
    stores.retain(|file| file.extension().is_some_and(|extension| extension != "md"));
    for file in stores {
        let bytes = fs::read(file)?;
        let inputs = (0..6).map(|which| [&[which], &bytes[..]].concat());
        seeds.extend(inputs.map(|input| seed("stores", input)));
    }
    let texts = [
        ("sasl", SASL),
        ("client_config", CLIENT_CONFIG),
        ("sink_config", SINK_CONFIG),
    ];
    for (target, inputs) in texts {
        seeds.extend(inputs.iter().map(|input| seed(target, input.to_vec())));
    }
    for target in ["record_writer", "acknowledgements"] {
        seeds.extend([16, 64, 256, 1024].map(|size| seed(target, noise(size))));
    }
    Ok(seeds)
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/wire/testdata")
}

fn seed(target: &'static str, input: Vec<u8>) -> Seed {
    Seed { target, input }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files: Vec<_> = entries.collect::<io::Result<_>>()?;
    files.retain(|file| file.is_file());
    files.sort();
    Ok(files)
}

fn lines(file: &Path) -> io::Result<Vec<Value>> {
    let text = fs::read_to_string(file)?;
    text.lines()
        .map(|line| serde_json::from_str(line).map_err(io::Error::from))
        .collect()
}

/// The bytes that a line holds in hexadecimal digits.
fn bytes_of(line: &Value) -> Vec<u8> {
    let digits = line["hex"].as_str().unwrap_or_default().as_bytes();
    let value = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
    digits
        .chunks_exact(2)
        .map(|pair| value(pair[0]) << 4 | value(pair[1]))
        .collect()
}

fn of_message(line: &Value, is_response: bool, seeds: &mut Vec<Seed>) {
    let number = |name: &str| {
        line[name]
            .as_i64()
            .and_then(|number| number.try_into().ok())
    };
    let kind = Kind {
        key: number("key").expect("a key"),
        is_response,
        version: number("version").expect("a version"),
    };
    let body = bytes_of(line);
    let input = kind.input(&body);
    let target = match kind.key {
        76 | 77 => "share_group",
        78 => "share_fetch",
        79 => "share_acknowledge",
        90..=92 => "share_offsets",
        _ => "messages",
    };
    seeds.push(seed(target, input.clone()));
    seeds.push(seed("differential", input));
    seeds.push(seed("frame", kind.input(&frame(kind, &body))));
}

/// The body with its header.
fn frame(kind: Kind, body: &[u8]) -> Vec<u8> {
    fn is_flexible<M: Message>(version: i16) -> bool {
        M::is_flexible(version)
    }
    let is_flexible = for_api!(kind.key, is_flexible(kind.version));
    let is_flexible = is_flexible.expect("every API has its line in for_api!");
    let mut frame = BytesMut::new();
    if kind.is_response {
        frame.extend_from_slice(&[0, 0, 0, 7]);
        if is_flexible && kind.key != 18 {
            frame.extend_from_slice(&[0]);
        }
    } else {
        let header = RequestHeader {
            api_key: kind.key,
            api_version: kind.version,
            correlation_id: CorrelationId(7),
            client_id: Some("me".to_owned()),
        };
        header.encode(is_flexible, &mut frame);
    }
    frame.extend_from_slice(body);
    frame.into()
}

fn of_records(bytes: &[u8], seeds: &mut Vec<Seed>) {
    for flags in [0, 1, 2] {
        seeds.push(seed("record_batches", [&[flags], bytes].concat()));
    }
    let batches = RecordBatches::new(Bytes::copy_from_slice(bytes));
    for batch in batches.flatten() {
        let input = inside_of(batch.bytes());
        let head = input.len() - (batch.size_bytes() - BATCH_HEADER_BYTES);
        if let Ok(payload) = batch.payload(&DecompressLimits::DEFAULT) {
            let mut unpacked = [&input[..head], &payload].concat();
            unpacked[0] |= 1;
            seeds.push(seed("record_inside", unpacked));
        }
        let stream = [&[batch.compression().id(), 0], &input[head..]].concat();
        seeds.push(seed("decompress", stream));
        seeds.push(seed("record_inside", input));
    }
}

/// Bytes without a meaning.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..size).map(|_| next()).collect()
}

const SASL: &[&[u8]] = &[
    b"\x080\xff",
    b"\x08\x3awrong password ~",
    b"\x090r=%x,s=c2FsdA==,i=4096\xff0v=c2lnbmF0dXJl",
    b"\x0a0r=%x,s=c2FsdA==,i=8192\xff0e=unknown-user",
    b"\x0b0",
    b"\x0b0{\"status\":\"invalid_token\"}\xff\x3a{\"status\":\"~\"}",
    b"\x05\0\0\0\0\0\x03\0\x12\0\0\0\x04\0\x11\0\0\0\x01\0\x24\0\0\0\x02",
    b"\0\0\0\0\x0a\0\0\0\0\0\0\0\0\0\0",
];

const CLIENT_CONFIG: &[&[u8]] = &[
    b"\0localhost:9092,[::1]:9093, PLAINTEXT://broker.example.org:1 ,",
    b"\x01org.apache.kafka.common.security.plain.PlainLoginModule required username=\"alice\" password='x\\u\\101';",
    b"\x01// no\n/* yes */ M optional a.b=\"\\\"\\\\\\n\";",
    b"\x02security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"alice\" password=\"hush-hush-hush\" tokenauth=true;\nssl.key.password=hush-hush-hush",
    b"\x02security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config=OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"alice\" unsecuredLoginNumberClaim_n=\"1.5\" unsecuredLoginListClaim_l=\",a,b\" unsecuredLoginLifetimeSeconds=\"60\" extension_a=\"b\";",
    b"\x02sasl.oauthbearer.token.endpoint.url=file:///tmp/token\nsasl.mechanism=PLAIN\nssl.enabled.protocols=TLSv1.2,TLSv1.3\nssl.truststore.type=PKCS12\nssl.endpoint.identification.algorithm=",
];

const SINK_CONFIG: &[&[u8]] = &[
    b"\0# worker\nbootstrap.servers=localhost:9092\nkey.converter = org.apache.kafka.connect.storage.StringConverter\n!\nconsumer.share.acquire.mode:record_limit\nconnector.client.config.override.policy All\0name=orders\nconnector.class=FileStreamSink\ntopics=a, b,\\\n  c\nfile=/tmp/\\u0061\ntasks.max=2\nerrors.tolerance=all\n",
    b"\x01{\"bootstrap.servers\": \"[::1]:9092\", \"offset.flush.interval.ms\": 1000}\0{\"name\": \"n\", \"config\": {\"connector.class\": \"console\", \"topics\": \"t\", \"tasks.max\": \"1\", \"consumer.override.max.poll.records\": 5}}",
    b"\0bootstrap.servers=x:1\nshutdown.timeout.ms=7\nsecurity.protocol=SASL_SSL\nsasl.jaas.config=M required a=\"b\";\0name=n\nconnector.class=console\ntopics.regex=.*\nshare.group.id=g\nshare.auto.offset.reset=by_duration:PT1H\n",
];
