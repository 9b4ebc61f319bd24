//! A share group over a plain socket: joins, prints and accepts what one fetch brings, leaves.
use std::{error::Error, io::Write, net::TcpStream, thread::sleep, time::Duration};

use sharegroup_wire::frame::{decode_response, encode_request, read_frame};
use sharegroup_wire::message::{Request, find_coordinator::*, share_acknowledge::*};
use sharegroup_wire::message::{share_fetch::*, share_group_heartbeat::*};
use sharegroup_wire::{CorrelationId, MemberEpoch, SessionEpoch, record::RecordBatches};

fn ask<R: Request>(broker: &mut TcpStream, request: &R) -> Result<R::Response, Box<dyn Error>> {
    broker.write_all(&encode_request(request, 1, CorrelationId(1), None))?;
    Ok(decode_response::<R>(&read_frame(broker)?, 1)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, group, topic] = arguments.as_slice() else {
        return Err("usage: raw HOST:PORT GROUP TOPIC (one broker, one partition)".into());
    };
    let broker = &mut TcpStream::connect(address)?;
    let mut find = FindCoordinatorRequest::default();
    find.key.clone_from(group);
    let mut heartbeat = ShareGroupHeartbeatRequest::default();
    (heartbeat.group_id, heartbeat.member_id) = (group.clone(), "raw".into());
    heartbeat.subscribed_topic_names = Some(vec![topic.clone()]);
    let topic_id = loop {
        ask(broker, &find)?; // Makes a new cluster create its coordinators.
        let member = ask(broker, &heartbeat)?;
        heartbeat.member_epoch = member.member_epoch;
        let assignment = member.assignment.unwrap_or_default();
        match assignment.topic_partitions.first() {
            Some(topic) => break topic.topic_id,
            None => sleep(Duration::from_millis(100)),
        }
    };
    let mut fetch = ShareFetchRequest::default();
    (fetch.group_id, fetch.member_id) = (Some(group.clone()), Some("raw".into()));
    (fetch.max_wait_ms, fetch.min_bytes) = (5_000, 1);
    (fetch.max_records, fetch.batch_size) = (500, 500);
    fetch.topics.push(FetchTopic::of(topic_id, [0]));
    let mut close = ShareAcknowledgeRequest::default();
    (close.group_id, close.member_id) = (fetch.group_id.clone(), fetch.member_id.clone());
    close.share_session_epoch = SessionEpoch::CLOSE;
    let fetched = ask(broker, &fetch)?.responses.into_iter();
    for mut partition in fetched.flat_map(|topic| topic.partitions) {
        for batch in RecordBatches::new(std::mem::take(&mut partition.records)) {
            for record in batch?.records(&Default::default())? {
                println!("{}", record?.value.unwrap_or_default().escape_ascii());
            }
        }
        close.topics.push(partition.acknowledge(topic_id, 1)); // 1 = accept
    }
    let accepted = ask(broker, &close)?;
    heartbeat.member_epoch = MemberEpoch::LEAVE;
    ask(broker, &heartbeat)?;
    Ok(accepted.ok()?)
}
