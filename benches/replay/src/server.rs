//! The server: a thread per connection, offsets that all of them share.

use std::io::{BufReader, ErrorKind, Read as _, Write as _, stdin};
use std::net::{TcpListener, TcpStream};
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use sharegroup_wire::frame::{RequestHeader, encode_response, read_frame};
use sharegroup_wire::id::{BrokerId, MemberEpoch};
use sharegroup_wire::message::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use sharegroup_wire::message::find_coordinator::{
    Coordinator, FindCoordinatorRequest, FindCoordinatorResponse,
};
use sharegroup_wire::message::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use sharegroup_wire::message::share_acknowledge::{
    AcknowledgedPartition, AcknowledgedTopic, ShareAcknowledgeRequest, ShareAcknowledgeResponse,
};
use sharegroup_wire::message::share_fetch::ShareFetchRequest;
use sharegroup_wire::message::share_group_heartbeat::{
    Assignment, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TopicPartitions,
};
use sharegroup_wire::message::{Message, Request};
use sharegroup_wire::primitive::Reader;

use crate::frames::{Frames, LOCK_MS, PARTITIONS, TOPIC, response};

const NODE: BrokerId = BrokerId(1);
const HOST: &str = "127.0.0.1";
const NAME: &str = "replay";

/// Serves until the standard input ends, as it does when whoever started this is gone.
pub(crate) fn run(value_bytes: usize) -> anyhow::Result<()> {
    let listener = TcpListener::bind((HOST, 0))?;
    let port = listener.local_addr()?.port();
    let next = Arc::new(Offsets::default());
    println!("ready {HOST}:{port}");
    thread::spawn(|| {
        // Whatever ends it is an end.
        drop(stdin().read_to_end(&mut Vec::new()));
        exit(0);
    });
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        let next = Arc::clone(&next);
        thread::spawn(move || {
            let connection = Connection {
                port: port.into(),
                value_bytes,
                next,
                frames: None,
                turn: 0,
            };
            if let Err(error) = connection.serve(stream) {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

/// The next offset of each partition.
#[derive(Default)]
struct Offsets([AtomicI64; PARTITIONS as usize]);

struct Connection {
    port: i32,
    value_bytes: usize,
    next: Arc<Offsets>,
    frames: Option<Frames>,
    /// Which partition has records next.
    turn: usize,
}

impl Connection {
    fn serve(mut self, stream: TcpStream) -> anyhow::Result<()> {
        let mut input = BufReader::new(stream.try_clone()?);
        let mut output = stream;
        loop {
            let frame = match read_frame(&mut input) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                frame => frame?,
            };
            let mut reader = Reader::new(&frame);
            let header = RequestHeader::decode(&mut reader, is_flexible)?;
            let body = frame.slice(reader.position()..);
            match header.api_key {
                ShareFetchRequest::KEY => self.fetch(&header, &body, &mut output)?,
                _ => output.write_all(&self.answer(&header, &body)?)?,
            }
        }
    }

    fn fetch(
        &mut self,
        header: &RequestHeader,
        body: &Bytes,
        output: &mut TcpStream,
    ) -> anyhow::Result<()> {
        let version = header.api_version;
        let request = ShareFetchRequest::from_bytes(body, version)?;
        if request.max_records <= 0 || request.is_renew_ack {
            let nothing = encode_response::<ShareFetchRequest>(
                &response(None),
                version,
                header.correlation_id,
            );
            return Ok(output.write_all(&nothing)?);
        }
        let frames = match &mut self.frames {
            Some(frames) => frames,
            None => self.frames.insert(Frames::new(version, self.value_bytes)?),
        };
        let partition = self.turn % PARTITIONS as usize;
        self.turn += 1;
        let frame = frames.frame(i32::try_from(partition)?, request.max_records)?;
        let next = self.next.0.get(partition).context("a partition")?;
        let offset = next.fetch_add(frame.records(), Ordering::Relaxed);
        frame.patch(header.correlation_id, offset);
        Ok(output.write_all(&frame.bytes)?)
    }

    fn answer(&self, header: &RequestHeader, body: &Bytes) -> anyhow::Result<Bytes> {
        let (version, id) = (header.api_version, header.correlation_id);
        Ok(match header.api_key {
            ApiVersionsRequest::KEY => {
                encode_response::<ApiVersionsRequest>(&api_versions(), version, id)
            }
            MetadataRequest::KEY => {
                encode_response::<MetadataRequest>(&self.metadata(), version, id)
            }
            FindCoordinatorRequest::KEY => {
                let request = FindCoordinatorRequest::from_bytes(body, version)?;
                encode_response::<FindCoordinatorRequest>(&self.coordinators(request), version, id)
            }
            ShareGroupHeartbeatRequest::KEY => {
                let request = ShareGroupHeartbeatRequest::from_bytes(body, version)?;
                encode_response::<ShareGroupHeartbeatRequest>(&assign(request), version, id)
            }
            ShareAcknowledgeRequest::KEY => {
                let request = ShareAcknowledgeRequest::from_bytes(body, version)?;
                encode_response::<ShareAcknowledgeRequest>(&confirm(&request), version, id)
            }
            other => bail!("API {other} was not offered"),
        })
    }

    fn metadata(&self) -> MetadataResponse {
        let partitions = (0..PARTITIONS).map(|partition_index| MetadataResponsePartition {
            partition_index,
            leader_id: NODE,
            leader_epoch: 0,
            replica_nodes: vec![NODE],
            isr_nodes: vec![NODE],
            ..Default::default()
        });
        MetadataResponse {
            brokers: vec![MetadataResponseBroker {
                node_id: NODE,
                host: HOST.into(),
                port: self.port,
                rack: None,
            }],
            cluster_id: Some(NAME.into()),
            controller_id: NODE,
            topics: vec![MetadataResponseTopic {
                name: Some(NAME.into()),
                topic_id: TOPIC,
                partitions: partitions.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn coordinators(&self, request: FindCoordinatorRequest) -> FindCoordinatorResponse {
        let coordinators = request.coordinator_keys.into_iter().map(|key| Coordinator {
            key,
            node_id: NODE,
            host: HOST.into(),
            port: self.port,
            ..Default::default()
        });
        FindCoordinatorResponse {
            node_id: NODE,
            host: HOST.into(),
            port: self.port,
            coordinators: coordinators.collect(),
            ..Default::default()
        }
    }
}

fn offered<R: Request>() -> ApiVersion {
    ApiVersion {
        api_key: R::KEY,
        min_version: R::VERSION_MIN,
        max_version: R::VERSION_MAX,
    }
}

fn is_flexible(key: i16, version: i16) -> bool {
    match key {
        ApiVersionsRequest::KEY => ApiVersionsRequest::is_flexible(version),
        MetadataRequest::KEY => MetadataRequest::is_flexible(version),
        FindCoordinatorRequest::KEY => FindCoordinatorRequest::is_flexible(version),
        _ => true,
    }
}

fn api_versions() -> ApiVersionsResponse {
    let share = || "share.version".to_owned();
    ApiVersionsResponse {
        api_keys: vec![
            offered::<ApiVersionsRequest>(),
            offered::<MetadataRequest>(),
            offered::<FindCoordinatorRequest>(),
            offered::<ShareGroupHeartbeatRequest>(),
            offered::<ShareFetchRequest>(),
            offered::<ShareAcknowledgeRequest>(),
        ],
        supported_features: vec![SupportedFeatureKey {
            name: share(),
            min_version: 1,
            max_version: 2,
        }],
        finalized_features_epoch: 1,
        finalized_features: vec![FinalizedFeatureKey {
            name: share(),
            max_version_level: 2,
            min_version_level: 2,
        }],
        ..Default::default()
    }
}

/// Everything to everybody.
fn assign(request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse {
    let is_leaving = request.member_epoch.0 < 0;
    ShareGroupHeartbeatResponse {
        member_id: Some(request.member_id),
        member_epoch: MemberEpoch(if is_leaving { -1 } else { 1 }),
        heartbeat_interval_ms: 5000,
        assignment: (!is_leaving).then(|| Assignment {
            topic_partitions: vec![TopicPartitions {
                topic_id: TOPIC,
                partitions: (0..PARTITIONS).collect(),
            }],
        }),
        ..Default::default()
    }
}

fn confirm(request: &ShareAcknowledgeRequest) -> ShareAcknowledgeResponse {
    let responses = request.topics.iter().map(|topic| AcknowledgedTopic {
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| AcknowledgedPartition {
                partition_index: partition.partition_index,
                ..Default::default()
            })
            .collect(),
    });
    ShareAcknowledgeResponse {
        acquisition_lock_timeout_ms: LOCK_MS,
        responses: responses.collect(),
        ..Default::default()
    }
}
