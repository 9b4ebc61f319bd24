//! A wire between a client and its brokers that writes down what is sent, and makes things go wrong on the way:
//! in the same manner on a real broker and on the embedded one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use sharegroup_wire::frame::{
    RequestHeader, decode_response, encode_request, encode_response, response_correlation_id,
};
use sharegroup_wire::id::{CorrelationId, SessionEpoch, TopicId};
use sharegroup_wire::message::Request;
use sharegroup_wire::message::share_acknowledge::ShareAcknowledgeRequest;
use sharegroup_wire::message::share_fetch::{AcknowledgementBatch, ShareFetchRequest};
use sharegroup_wire::net::{Address, BoxStream, ConnectFuture, Connector, TcpConnector};
use sharegroup_wire::primitive::Reader;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep};

/// RENEW on the wire.
pub(crate) const RENEW: i8 = 4;

/// A request as the client sent it.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    /// The connection, by number.
    pub(crate) link: usize,
    /// The broker's.
    pub(crate) address: String,
    pub(crate) api_key: i16,
    pub(crate) version: i16,
    /// Of an earlier one of the same connection that has no answer yet.
    pub(crate) is_second: bool,
    correlation_id: CorrelationId,
    frame: Bytes,
}

/// A range that is acknowledged: topic and partition, then offsets and types.
pub(crate) type Acknowledged = ((TopicId, i32), AcknowledgementBatch);

impl Sent {
    /// The body, where it is one of this API.
    pub(crate) fn read<R: Request>(&self) -> Option<R> {
        if self.api_key != R::KEY {
            return None;
        }
        let mut reader = Reader::new(&self.frame);
        RequestHeader::decode(&mut reader, |_, version| R::is_flexible(version)).unwrap();
        let body = self.frame.slice(reader.position()..);
        Some(R::from_bytes(&body, self.version).unwrap())
    }

    /// What it acknowledges, in its order.
    pub(crate) fn acknowledged(&self) -> Vec<Acknowledged> {
        let mut found = Vec::new();
        let mut enter = |topic_id, partition, batches: Vec<AcknowledgementBatch>| {
            let batches = batches.into_iter();
            found.extend(batches.map(|batch| ((topic_id, partition), batch)));
        };
        let fetch: Option<ShareFetchRequest> = self.read();
        for topic in fetch.into_iter().flat_map(|fetch| fetch.topics) {
            for partition in topic.partitions {
                let batches = partition.acknowledgement_batches;
                enter(topic.topic_id, partition.partition_index, batches);
            }
        }
        let request: Option<ShareAcknowledgeRequest> = self.read();
        for topic in request.into_iter().flat_map(|request| request.topics) {
            for partition in topic.partitions {
                let batches = partition.acknowledgement_batches;
                enter(topic.topic_id, partition.partition_index, batches);
            }
        }
        found
    }

    /// Whether it settles anything of a partition.
    pub(crate) fn settles_of(&self, partition: i32) -> bool {
        let is_of = |(place, _): &Acknowledged| place.1 == partition;
        self.settles() && self.acknowledged().iter().any(is_of)
    }

    /// Whether it settles anything: a renewal doesn't.
    pub(crate) fn settles(&self) -> bool {
        let settles =
            |(_, batch): &Acknowledged| batch.acknowledge_types.iter().any(|t| *t != RENEW);
        self.acknowledged().iter().any(settles)
    }

    pub(crate) fn renews(&self) -> bool {
        let renews = |(_, batch): &Acknowledged| batch.acknowledge_types.contains(&RENEW);
        self.acknowledged().iter().any(renews)
    }

    /// Whether it belongs to a share session.
    pub(crate) fn is_of_session(&self) -> bool {
        [ShareFetchRequest::KEY, ShareAcknowledgeRequest::KEY].contains(&self.api_key)
    }

    /// Whether it takes partitions out of a session, or ends it.
    pub(crate) fn forgets_or_closes(&self) -> bool {
        let close = SessionEpoch::CLOSE;
        let fetch = self.read::<ShareFetchRequest>();
        let forgets = |fetch: ShareFetchRequest| {
            fetch.share_session_epoch == close || !fetch.forgotten_topics_data.is_empty()
        };
        let request = self.read::<ShareAcknowledgeRequest>();
        fetch.is_some_and(forgets)
            || request.is_some_and(|request| request.share_session_epoch == close)
    }

    /// The broker gets another request instead.
    pub(crate) fn changed<R: Request>(&self, change: impl FnOnce(&mut R)) -> Fault {
        let mut request = self.read::<R>().unwrap();
        change(&mut request);
        Fault::Instead(encode_request(
            &request,
            self.version,
            self.correlation_id,
            None,
        ))
    }

    /// The broker never sees it, and this is the answer.
    pub(crate) fn answered<R: Request>(&self, answer: &R::Response) -> Fault {
        Fault::Answer(encode_response::<R>(
            answer,
            self.version,
            self.correlation_id,
        ))
    }
}

/// What becomes of a request.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The connection is cut before the broker sees it.
    CutBefore,
    /// The connection is cut in place of the answer.
    CutAfter,
    /// It is never answered.
    Withhold,
    /// It is answered so much later.
    Delay(Duration),
    /// The broker gets this frame, its size included.
    Instead(Bytes),
    /// The client gets this frame, its size included; the broker gets nothing.
    Answer(Bytes),
}

type OnRequest = Box<dyn FnMut(&Sent) -> Option<Fault> + Send>;
/// The frame of an answer and its version; a changed one, and whether that was all.
type OnAnswer = Box<dyn FnMut(&Bytes, i16) -> (Option<Bytes>, bool) + Send>;

#[derive(Default)]
struct State {
    sent: Vec<Sent>,
    requests: Vec<(usize, OnRequest)>,
    answers: Vec<(i16, OnAnswer)>,
}

/// The wire. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Tap(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    links: AtomicUsize,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

impl Tap {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            links: AtomicUsize::new(0),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// For the next requests, one by one: the first so many for which there is a fault meet it.
    pub(crate) fn on(
        &self,
        times: usize,
        fault: impl FnMut(&Sent) -> Option<Fault> + Send + 'static,
    ) {
        self.state().requests.push((times, Box::new(fault)));
    }

    /// Makes one fault befall the next so many requests of an API.
    pub(crate) fn fault(&self, times: usize, api_key: i16, fault: Fault) {
        self.on(times, move |sent| {
            (sent.api_key == api_key).then(|| fault.clone())
        });
    }

    /// Changes answers of an API, until `change` says that it is done.
    pub(crate) fn answers<R: Request>(
        &self,
        mut change: impl FnMut(&mut R::Response) -> bool + Send + 'static,
    ) {
        let on = move |frame: &Bytes, version| {
            let mut answer = decode_response::<R>(frame, version).unwrap();
            let is_done = change(&mut answer);
            let correlation_id = response_correlation_id(frame).unwrap();
            let changed = encode_response::<R>(&answer, version, correlation_id);
            (Some(changed.slice(4..)), is_done)
        };
        self.state().answers.push((R::KEY, Box::new(on)));
    }

    /// Connections that were opened so far.
    pub(crate) fn links(&self) -> usize {
        self.0.links.load(Ordering::Relaxed)
    }

    /// All requests so far.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.state().sent.clone()
    }

    /// All bodies of an API so far.
    pub(crate) fn bodies<R: Request>(&self) -> Vec<R> {
        self.state().sent.iter().filter_map(Sent::read).collect()
    }

    /// Which brokers were fetched from.
    pub(crate) fn fetched_from(&self) -> BTreeSet<String> {
        let state = self.state();
        let fetches = |sent: &&Sent| {
            let fetch: Option<ShareFetchRequest> = sent.read();
            fetch.is_some_and(|fetch| !fetch.topics.is_empty())
        };
        let fetches = state.sent.iter().filter(fetches);
        fetches.map(|sent| sent.address.clone()).collect()
    }

    pub(crate) fn count(&self, is_it: impl Fn(&Sent) -> bool) -> usize {
        self.state().sent.iter().filter(|sent| is_it(sent)).count()
    }

    /// No client may send what none may send.
    pub(crate) fn check(&self) {
        for sent in self.sent() {
            check_batches(&sent);
            if let Some(fetch) = sent.read::<ShareFetchRequest>() {
                let is_bare = fetch.share_session_epoch != SessionEpoch::OPEN
                    || sent.acknowledged().is_empty();
                assert!(is_bare, "epoch 0 with acknowledgements: {fetch:?}");
                assert!(
                    !sent.is_second,
                    "two requests of a session at a time: {fetch:?}"
                );
                let limits = [
                    fetch.max_wait_ms,
                    fetch.min_bytes,
                    fetch.max_bytes,
                    fetch.max_records,
                ];
                assert!(
                    !sent.renews() || limits == [0; 4],
                    "a renewal that fetches: {fetch:?}"
                );
                assert_eq!(fetch.is_renew_ack, sent.renews(), "{fetch:?}");
            } else if let Some(request) = sent.read::<ShareAcknowledgeRequest>() {
                assert!(
                    !sent.is_second,
                    "two requests of a session at a time: {request:?}"
                );
                assert_eq!(request.is_renew_ack, sent.renews(), "{request:?}");
                assert_ne!(
                    request.share_session_epoch,
                    SessionEpoch::OPEN,
                    "{request:?}"
                );
            }
        }
    }

    /// Notes a request. What becomes of it is what the first rule says.
    fn note(&self, sent: Sent) -> Option<Fault> {
        let state = &mut *self.state();
        let mut fault = None;
        for (times, rule) in &mut state.requests {
            fault = rule(&sent);
            if fault.is_some() {
                *times -= 1;
                break;
            }
        }
        state.requests.retain(|(times, _)| *times > 0);
        state.sent.push(sent);
        fault
    }

    fn answer(&self, api_key: i16, version: i16, mut frame: Bytes) -> Bytes {
        let answers = &mut self.state().answers;
        answers.retain_mut(|(key, change)| {
            if *key != api_key {
                return true;
            }
            let (changed, is_done) = change(&frame, version);
            frame = changed.unwrap_or_else(|| frame.clone());
            !is_done
        });
        frame
    }
}

/// Ascending, apart, and with version 1 of no type above 3.
fn check_batches(sent: &Sent) {
    let mut last: BTreeMap<(TopicId, i32), i64> = BTreeMap::new();
    for (partition, batch) in sent.acknowledged() {
        let before = last.insert(partition, batch.last_offset);
        let is_ascending = before.is_none_or(|before| before < batch.first_offset);
        assert!(
            is_ascending && batch.first_offset <= batch.last_offset,
            "{sent:?}"
        );
        let is_known = |kind: &i8| (0..=3 + i8::from(sent.version > 1)).contains(kind);
        assert!(batch.acknowledge_types.iter().all(is_known), "{batch:?}");
    }
}

impl Connector for Tap {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move {
            let broker = TcpConnector::default().connect(address).await?;
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let wire = Wire {
                tap: self.clone(),
                link: self.0.links.fetch_add(1, Ordering::Relaxed),
                address: address.to_string(),
                open: Mutex::default(),
            };
            tokio::spawn(wire.carry(theirs, broker));
            Ok(Box::new(ours) as BoxStream)
        })
    }
}

/// API and version of a request, and what becomes of it.
type Open = (i16, i16, Option<Fault>);

type ToClient = AsyncMutex<WriteHalf<DuplexStream>>;

/// One connection.
struct Wire {
    tap: Tap,
    link: usize,
    address: String,
    /// Requests without an answer.
    open: Mutex<HashMap<CorrelationId, Open>>,
}

impl Wire {
    async fn carry(self, client: DuplexStream, broker: BoxStream) {
        let (from_client, to_client) = split(client);
        let (from_broker, to_broker) = split(broker);
        let to_client = AsyncMutex::new(to_client);
        tokio::select! {
            ended = self.up(from_client, to_broker, &to_client) => drop(ended),
            ended = self.down(from_broker, &to_client) => drop(ended),
        }
    }

    async fn up(
        &self,
        mut client: ReadHalf<DuplexStream>,
        mut broker: WriteHalf<BoxStream>,
        to_client: &ToClient,
    ) -> io::Result<()> {
        loop {
            let frame = read_frame(&mut client).await?;
            let word = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
            let (api_key, version) = (word(0), word(2));
            let correlation_id = response_correlation_id(&frame.slice(4..)).unwrap();
            let fault = self.tap.note(Sent {
                at: Instant::now(),
                link: self.link,
                address: self.address.clone(),
                api_key,
                version,
                is_second: !self.open.lock().unwrap().is_empty(),
                correlation_id,
                frame: frame.clone(),
            });
            let changed = match &fault {
                Some(Fault::CutBefore) => return Ok(()),
                Some(Fault::Answer(answer)) => {
                    write_frame(&mut *to_client.lock().await, &answer.slice(4..)).await?;
                    continue;
                }
                Some(Fault::Instead(changed)) => changed.slice(4..),
                _ => frame,
            };
            let open = (api_key, version, fault);
            self.open.lock().unwrap().insert(correlation_id, open);
            write_frame(&mut broker, &changed).await?;
        }
    }

    async fn down(&self, mut broker: ReadHalf<BoxStream>, to_client: &ToClient) -> io::Result<()> {
        loop {
            let frame = read_frame(&mut broker).await?;
            let correlation_id = response_correlation_id(&frame).unwrap();
            let open = self.open.lock().unwrap().get(&correlation_id).cloned();
            let (api_key, version, fault) = open.unwrap();
            match fault {
                Some(Fault::CutAfter) => return Ok(()),
                Some(Fault::Withhold) => continue,
                Some(Fault::Delay(time)) => sleep(time).await,
                _ => {}
            }
            let frame = self.tap.answer(api_key, version, frame);
            self.open.lock().unwrap().remove(&correlation_id);
            write_frame(&mut *to_client.lock().await, &frame).await?;
        }
    }
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let size = stream.read_u32().await?;
    let mut frame = vec![0; size as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame.into())
}

async fn write_frame(stream: &mut (impl AsyncWriteExt + Unpin), frame: &Bytes) -> io::Result<()> {
    stream
        .write_u32(u32::try_from(frame.len()).unwrap())
        .await?;
    stream.write_all(frame).await?;
    stream.flush().await
}
