//! The task behind a connection: writes frames, reads answers, watches deadlines.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::error::DecodeError;
use crate::frame::response_correlation_id;
use crate::id::CorrelationId;
use crate::limits::FRAME_BYTES_TRUSTED;
use crate::net::connector::BoxStream;
use crate::net::error::CloseReason;

/// What the task and the handles of one connection share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// A deadline earlier than all others may have been added.
    deadline_added: Notify,
    closed: watch::Sender<Option<CloseReason>>,
}

#[derive(Debug)]
struct State {
    correlation_id: i32,
    /// The last answer to a request other than SASL's; at first the start.
    used_at: Instant,
    silence_means: Silence,
    /// Requests without an answer, in the order in which they are written.
    waiting: VecDeque<Waiting>,
}

/// What it would mean if the peer ended the connection instead of answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    /// That it expects TLS: this side has none, and nothing was answered yet.
    Tls,
    /// That it expects SASL: this side has none, and only ApiVersions was answered yet.
    Sasl,
    /// Nothing in particular.
    Nothing,
}

/// A request without an answer. It stays here when its caller gives up: the answer will come.
#[derive(Debug)]
struct Waiting {
    correlation_id: CorrelationId,
    api: &'static str,
    timeout: Duration,
    deadline: Instant,
    /// Whether its writing has begun.
    is_sent: bool,
    answer: oneshot::Sender<Outcome>,
    /// `None` for a request of SASL.
    place: Option<OwnedSemaphorePermit>,
}

/// What a call gets.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The answer's frame without its size.
    Answer(Bytes),
    /// The request's own deadline passed.
    Timeout,
    /// The connection ended before the request was written.
    NotSent(CloseReason),
    /// The connection ended.
    Lost(CloseReason),
}

/// What the caller knows of a request before it is numbered.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) api: &'static str,
    pub(super) timeout: Duration,
    pub(super) deadline: Instant,
    /// `None` for a request of SASL, of which there is one at a time.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl Shared {
    pub(super) fn new(is_tls: bool) -> Self {
        Self {
            state: Mutex::new(State {
                correlation_id: 0,
                used_at: Instant::now(),
                silence_means: if is_tls {
                    Silence::Nothing
                } else {
                    Silence::Tls
                },
                waiting: VecDeque::new(),
            }),
            deadline_added: Notify::new(),
            closed: watch::Sender::new(None),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock; if it ever did, the queue would still be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers a request, queues it for its answer and hands its frame to the task, as one step, so
    /// that the order of the queue is the order on the wire.
    pub(super) fn submit(
        &self,
        submission: Submission,
        frames: &mpsc::Sender<Bytes>,
        encode: impl FnOnce(CorrelationId) -> Bytes,
    ) -> Result<oneshot::Receiver<Outcome>, CloseReason> {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state();
        if let Some(reason) = self.close_reason() {
            return Err(reason);
        }
        let correlation_id = CorrelationId(state.correlation_id);
        state.correlation_id = state.correlation_id.checked_add(1).unwrap_or(0);
        // INVARIANT: the channel has a place for each permit of the semaphore and one for SASL, and
        // the caller holds one or is SASL's only request, so it is never full; it is closed only when the task is gone.
        if frames.try_send(encode(correlation_id)).is_err() {
            return Err(CloseReason::ByUs);
        }
        let Submission {
            api,
            timeout,
            deadline,
            place,
        } = submission;
        let is_earliest = state
            .waiting
            .iter()
            .all(|waiting| deadline < waiting.deadline);
        state.waiting.push_back(Waiting {
            correlation_id,
            api,
            timeout,
            deadline,
            is_sent: false,
            answer,
            place,
        });
        drop(state);
        if is_earliest {
            self.deadline_added.notify_one();
        }
        Ok(receiver)
    }

    /// The peer is a broker: it has answered ApiVersions.
    pub(super) fn negotiated(&self, has_sasl: bool) {
        self.state().silence_means = if has_sasl {
            Silence::Nothing
        } else {
            Silence::Sasl
        };
    }

    /// The peer's end, told by what it came instead of.
    fn interpreted(&self, reason: CloseReason) -> CloseReason {
        let state = self.state();
        let is_asked = state.waiting.iter().any(|waiting| waiting.is_sent);
        match state.silence_means {
            Silence::Tls if is_asked && reason.is_end() => CloseReason::ByPeerAtApiVersions,
            Silence::Sasl if is_asked && reason.is_end() => CloseReason::ByPeerAtFirstRequest,
            _ => reason,
        }
    }

    /// Why the connection ended; `None` while it is open.
    pub(super) fn close_reason(&self) -> Option<CloseReason> {
        self.closed.borrow().clone()
    }

    /// Waits for the end.
    pub(super) async fn closed(&self) -> CloseReason {
        let mut closed = self.closed.subscribe();
        match closed.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(CloseReason::ByUs),
            Err(_) => CloseReason::ByUs,
        }
    }

    /// Ends the connection for `reason` (the first one stays) and fails all waiting requests.
    pub(super) fn close(&self, reason: CloseReason) {
        let now = Instant::now();
        let mut state = self.state();
        let mut first = false;
        self.closed.send_if_modified(|closed| {
            first = closed.is_none();
            closed.get_or_insert_with(|| reason.clone());
            first
        });
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for request in waiting {
            let own_deadline =
                matches!(reason, CloseReason::Timeout { .. }) && request.deadline <= now;
            let outcome = if own_deadline {
                Outcome::Timeout
            } else if !request.is_sent {
                Outcome::NotSent(reason.clone())
            } else {
                Outcome::Lost(reason.clone())
            };
            // A caller that gave up doesn't listen any more.
            drop(request.answer.send(outcome));
        }
    }

    /// The writing of the next frame begins. Frames are queued in the order of their requests.
    fn sending(&self) {
        let mut state = self.state();
        if let Some(next) = state.waiting.iter_mut().find(|waiting| !waiting.is_sent) {
            next.is_sent = true;
        }
    }

    /// Gives a frame to the request that is due.
    fn answer(&self, frame: Bytes) -> Result<(), CloseReason> {
        let received = response_correlation_id(&frame).map_err(CloseReason::Frame)?;
        let mut state = self.state();
        let expected = state.waiting.front().map(|waiting| waiting.correlation_id);
        if expected != Some(received) {
            return Err(CloseReason::CorrelationId {
                expected: expected.map(|id| id.0),
                received: received.0,
            });
        }
        state.silence_means = Silence::Nothing;
        let request = state.waiting.pop_front();
        if request
            .as_ref()
            .is_some_and(|request| request.place.is_some())
        {
            state.used_at = Instant::now();
        }
        drop(state);
        if let Some(request) = request {
            // The late answer of a call that was dropped is dropped.
            drop(request.answer.send(Outcome::Answer(frame)));
        }
        Ok(())
    }

    /// The last answer, or the start.
    fn used_at(&self) -> Instant {
        self.state().used_at
    }

    /// The waiting request whose deadline is the earliest.
    fn earliest(&self) -> Option<(Instant, &'static str, Duration)> {
        let state = self.state();
        state
            .waiting
            .iter()
            .min_by_key(|waiting| waiting.deadline)
            .map(|w| (w.deadline, w.api, w.timeout))
    }
}

/// Fails what waits when the task ends for any cause, the runtime's end included.
struct CloseOnDrop<'a>(&'a Shared);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close(CloseReason::ByUs);
    }
}

/// Runs a connection to its end.
pub(super) async fn run(
    stream: BoxStream,
    frames: mpsc::Receiver<Bytes>,
    shared: &Shared,
    frame_bytes_max: usize,
    idle_max: Option<Duration>,
) {
    let guard = CloseOnDrop(shared);
    let (reader, writer) = tokio::io::split(stream);
    let reason = tokio::select! {
        // An answer that has arrived goes first: it may be the one whose deadline passes now.
        biased;
        reason = shared.closed() => reason,
        reason = read_answers(reader, shared, frame_bytes_max) => reason,
        reason = write_frames(writer, frames, shared) => reason,
        reason = watch_deadlines(shared, idle_max) => reason,
    };
    shared.close(shared.interpreted(reason));
    drop(guard);
}

/// Writes each frame, which is one buffer, with one call. Measured over loopback beside a header and a
/// body in a vectored write: the same up to 16 KiB (2 and 5 us), and the requests of a share client are
/// a few hundred bytes. 1 MiB of produced records is copied once more, for 0.1 of 0.4 ms; under TLS
/// everything is copied anyway.
async fn write_frames(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Bytes>,
    shared: &Shared,
) -> CloseReason {
    while let Some(frame) = frames.recv().await {
        shared.sending();
        let written = async {
            writer.write_all(&frame).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            return error.into();
        }
    }
    // The last handle is gone.
    CloseReason::ByUs
}

async fn read_answers(
    mut reader: impl AsyncRead + Unpin,
    shared: &Shared,
    frame_bytes_max: usize,
) -> CloseReason {
    let mut trusted = FRAME_BYTES_TRUSTED;
    loop {
        let answered = async {
            let frame = read_frame(&mut reader, frame_bytes_max, trusted).await?;
            trusted = trusted.max(frame.len());
            shared.answer(frame)
        };
        if let Err(reason) = answered.await {
            return reason;
        }
    }
}

async fn watch_deadlines(shared: &Shared, idle_max: Option<Duration>) -> CloseReason {
    loop {
        let Some((deadline, api, timeout)) = shared.earliest() else {
            let Some(after) = idle_max else {
                shared.deadline_added.notified().await;
                continue;
            };
            let idle_until = shared.used_at() + after;
            if idle_until <= Instant::now() {
                return CloseReason::Idle { after };
            }
            tokio::select! {
                () = sleep_until(idle_until) => {}
                () = shared.deadline_added.notified() => {}
            }
            continue;
        };
        if deadline <= Instant::now() {
            return CloseReason::Timeout {
                api,
                after: timeout,
            };
        }
        tokio::select! {
            () = sleep_until(deadline) => {}
            () = shared.deadline_added.notified() => {}
        }
    }
}

/// Reads one frame into a buffer of its own, so that records are slices of what the socket filled
/// and a frame that is kept pins no other.
///
/// Up to `trusted` bytes, as much as the peer has sent in one frame before, the buffer has its full
/// size at once, and no byte is moved after it was read. A larger frame's buffer grows.
pub(super) async fn read_frame(
    reader: &mut (impl AsyncRead + Unpin),
    frame_bytes_max: usize,
    trusted: usize,
) -> Result<Bytes, CloseReason> {
    let mut size = [0_u8; 4];
    let mut filled = 0;
    while let Some(rest) = size.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest).await? {
            0 if filled == 0 => return Err(CloseReason::ByPeer),
            0 => {
                return Err(CloseReason::ByPeerInsideFrame {
                    missing: size.len() - filled,
                });
            }
            count => filled += count,
        }
    }
    let size = frame_size(size, frame_bytes_max)?;
    let mut frame = BytesMut::with_capacity(size.min(trusted));
    while frame.len() < size {
        let missing = size - frame.len();
        if frame.len() == frame.capacity() {
            frame.reserve(missing.min(frame.len().max(FRAME_BYTES_TRUSTED)));
        }
        if reader.read_buf(&mut (&mut frame).limit(missing)).await? == 0 {
            return Err(CloseReason::ByPeerInsideFrame { missing });
        }
    }
    Ok(frame.freeze())
}

/// Checks a frame's size before anything is allocated for it.
fn frame_size(bytes: [u8; 4], frame_bytes_max: usize) -> Result<usize, CloseReason> {
    match bytes {
        // A TLS record of type alert, version 3.x: a size of 352 MiB if taken for one.
        [0x15, 0x03, 0x00..=0x04, _] => return Err(CloseReason::TlsAlert),
        [b'H', b'T', b'T', b'P'] => return Err(CloseReason::Http),
        _ => {}
    }
    let size = i32::from_be_bytes(bytes);
    match usize::try_from(size) {
        Ok(size) if size > frame_bytes_max => Err(CloseReason::Frame(DecodeError::FrameTooLarge {
            size: size as u64,
            limit: frame_bytes_max,
        })),
        Ok(size) if size >= size_of::<i32>() => Ok(size),
        _ => Err(CloseReason::FrameSize { size }),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    const FRAME_BYTES: usize = 4 * 1024 * 1024;

    /// Sends frames of one size in pieces, and notes how much room each read has.
    #[derive(Default)]
    struct Source {
        sent: usize,
        rooms: Vec<usize>,
    }

    impl AsyncRead for Source {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.rooms.push(buffer.remaining());
            let bytes = if self.sent == 0 {
                (FRAME_BYTES as u32).to_be_bytes().to_vec()
            } else {
                vec![7; buffer.remaining().min(100_000)]
            };
            self.sent = (self.sent + bytes.len()) % (FRAME_BYTES + 4);
            buffer.put_slice(&bytes);
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_frame_of_a_size_seen_before_is_read_where_it_stays() {
        let mut source = Source::default();
        let max = FRAME_BYTES;
        let frame = read_frame(&mut source, max, FRAME_BYTES_TRUSTED).await;
        assert_eq!(frame.unwrap().len(), FRAME_BYTES);
        assert_eq!(source.rooms.get(1), Some(&FRAME_BYTES_TRUSTED));
        source.rooms.clear();
        let frame = read_frame(&mut source, max, FRAME_BYTES).await.unwrap();
        assert_eq!(frame.len(), FRAME_BYTES);
        // One buffer from the first byte on: what is left of it is what is missing of the frame.
        let missing = (0..).map(|reads| FRAME_BYTES - reads * 100_000);
        assert!(
            source.rooms[1..]
                .iter()
                .copied()
                .eq(missing.take(source.rooms.len() - 1))
        );
    }
}
