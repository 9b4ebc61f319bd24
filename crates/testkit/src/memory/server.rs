//! One connection at its broker.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sharegroup_wire::frame::{RequestHeader, encode_response};
use sharegroup_wire::message::api_versions::ApiVersionsRequest;
use sharegroup_wire::message::find_coordinator::FindCoordinatorRequest;
use sharegroup_wire::message::metadata::MetadataRequest;
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use sharegroup_wire::message::share_group_heartbeat::ShareGroupHeartbeatRequest;
use sharegroup_wire::message::{Message, Request};
use sharegroup_wire::primitive::Reader;
use sharegroup_wire::{BrokerId, DecodeError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Arrival, Fault, Shared, now};
use crate::model::{Answer, LinkId};

/// Serves a connection to its end; then the broker knows that it is gone.
pub(super) async fn serve(
    shared: Arc<Shared>,
    mut stream: DuplexStream,
    link: LinkId,
    broker: BrokerId,
) {
    tokio::select! {
        () = cut(&shared, link) => {}
        _ = answer_all(&shared, &mut stream, link, broker) => {}
    }
    let mut state = shared.state();
    state.live.remove(&link);
    state.cut.remove(&link);
    state.ready.remove(&link);
    state.model.disconnect(now(), link);
    drop(state);
    shared.changed.notify_waiters();
}

/// Waits until a test wants the connection cut.
async fn cut(shared: &Shared, link: LinkId) {
    loop {
        let changed = shared.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if shared.state().cut.contains(&link) {
            return;
        }
        changed.await;
    }
}

/// `None` when the connection is over.
async fn answer_all(
    shared: &Shared,
    stream: &mut DuplexStream,
    link: LinkId,
    broker: BrokerId,
) -> Option<()> {
    loop {
        let frame = read_frame(stream).await?;
        let Ok((header, body)) = parse(&frame) else {
            shared
                .state()
                .model
                .note_illegal("a request that can't be read");
            return None;
        };
        let arrival = Arrival {
            at: Instant::now(),
            link,
            broker,
            api_key: header.api_key,
            api_version: header.api_version,
        };
        let fault = shared.state().faults.arrived(arrival);
        let throttle = match fault {
            Fault::Drop => return None,
            Fault::Silence => pending().await,
            Fault::Throttle(time) => time,
            _ => Duration::ZERO,
        };
        let asked = Asked {
            shared,
            link,
            broker,
            header,
            body,
            throttle,
        };
        let answer = asked.answer().await;
        // Others may wait for what this request has set free.
        shared.changed.notify_waiters();
        let Ok(Some(answer)) = answer else {
            shared
                .state()
                .model
                .note_illegal("a request that can't be read, or of an unknown API");
            return None;
        };
        match fault {
            Fault::DropAfter => return None,
            Fault::Delay(time) => sleep(time).await,
            _ => {}
        }
        stream.write_all(&answer).await.ok()?;
    }
}

async fn read_frame(stream: &mut DuplexStream) -> Option<Bytes> {
    let size = stream.read_u32().await.ok()?;
    let mut frame = BytesMut::zeroed(usize::try_from(size).ok()?);
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame.freeze())
}

fn parse(frame: &Bytes) -> Result<(RequestHeader, Bytes), DecodeError> {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader, |key, version| match key {
        ApiVersionsRequest::API_KEY => ApiVersionsRequest::is_flexible(version),
        MetadataRequest::API_KEY => MetadataRequest::is_flexible(version),
        FindCoordinatorRequest::API_KEY => FindCoordinatorRequest::is_flexible(version),
        _ => true,
    })?;
    let body = frame.slice(reader.position()..);
    Ok((header, body))
}

/// One request.
struct Asked<'a> {
    shared: &'a Shared,
    link: LinkId,
    broker: BrokerId,
    header: RequestHeader,
    body: Bytes,
    throttle: Duration,
}

impl Asked<'_> {
    /// The frame that answers; `None` for an API that nobody here knows.
    async fn answer(&self) -> Result<Option<Bytes>, DecodeError> {
        let state = || self.shared.state();
        Ok(Some(match self.header.api_key {
            ApiVersionsRequest::API_KEY => {
                let response = state().model.api_versions(self.broker);
                self.frame::<ApiVersionsRequest>(&response)
            }
            MetadataRequest::API_KEY => {
                let request = self.request::<MetadataRequest>()?;
                let response = state().model.metadata(now(), &request);
                self.frame::<MetadataRequest>(&response)
            }
            FindCoordinatorRequest::API_KEY => {
                let request = self.request::<FindCoordinatorRequest>()?;
                let response = state().model.find_coordinator(now(), &request);
                self.frame::<FindCoordinatorRequest>(&response)
            }
            ShareGroupHeartbeatRequest::API_KEY => {
                let request = self.request::<ShareGroupHeartbeatRequest>()?;
                let response = state().model.heartbeat(now(), self.broker, &request);
                self.frame::<ShareGroupHeartbeatRequest>(&response)
            }
            ShareAcknowledgeRequest::API_KEY => {
                let request = self.request::<ShareAcknowledgeRequest>()?;
                let version = self.header.api_version;
                let mut response =
                    state()
                        .model
                        .share_acknowledge(now(), self.link, version, &request);
                response.throttle_time_ms = self.throttle_ms();
                self.frame::<ShareAcknowledgeRequest>(&response)
            }
            ShareFetchRequest::API_KEY => {
                let request = self.request::<ShareFetchRequest>()?;
                let mut response = self.fetch(&request).await;
                response.throttle_time_ms = self.throttle_ms();
                self.frame::<ShareFetchRequest>(&response)
            }
            _ => return Ok(None),
        }))
    }

    fn request<R: Request>(&self) -> Result<R, DecodeError> {
        R::from_bytes(&self.body, self.header.api_version)
    }

    fn frame<R: Request>(&self, response: &R::Response) -> Bytes {
        encode_response::<R>(
            response,
            self.header.api_version,
            self.header.correlation_id,
        )
    }

    fn throttle_ms(&self) -> i32 {
        i32::try_from(self.throttle.as_millis()).unwrap_or(i32::MAX)
    }

    async fn fetch(&self, request: &ShareFetchRequest) -> ShareFetchResponse {
        let version = self.header.api_version;
        let answer = self
            .shared
            .state()
            .model
            .share_fetch(now(), self.link, version, request);
        match answer {
            Answer::Now(fetched) => fetched.response,
            Answer::Parked => self.parked().await,
        }
    }

    /// Waits for data, or for the end of the long poll.
    async fn parked(&self) -> ShareFetchResponse {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let next = {
                let mut state = self.shared.state();
                let mut any = false;
                while let Some((link, fetched)) = state.model.poll_parked(now()) {
                    any |= link != self.link;
                    state.ready.insert(link, fetched);
                }
                if any {
                    self.shared.changed.notify_waiters();
                }
                if let Some(fetched) = state.ready.remove(&self.link) {
                    return fetched.response;
                }
                state.model.next_time()
            };
            let next = next.map_or_else(
                || Instant::now() + Duration::from_secs(3600),
                Instant::from_std,
            );
            tokio::select! {
                () = changed => {}
                () = sleep_until(next) => {}
            }
        }
    }
}
