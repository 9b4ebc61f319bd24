//! One connection: reads a frame, has it worked on, writes the answer, and only then reads on.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use sharegroup_wire::BrokerId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::limits::FRAME_BYTES_SMALL;
use super::shared::{Answer, Shared, Told};
use crate::model::LinkId;

/// Most memory that is reserved ahead of what has arrived, in bytes.
const RESERVED_BYTES_MAX: usize = 1024 * 1024;

/// Serves a connection until either side ends it.
pub(super) async fn serve<S>(shared: Arc<Shared>, broker: BrokerId, peer: String, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let Ok(_permit) = Arc::clone(&shared.connections).try_acquire_owned() else {
        tracing::warn!(%broker, peer, limit = shared.limits.connections_max, "Too many connections, one is closed.");
        return;
    };
    let (link, told) = shared.open(broker, &peer);
    let mut connection = Connection {
        shared: &shared,
        link,
        told,
        stream,
        buffer: BytesMut::new(),
    };
    if let Err(why) = connection.run().await {
        tracing::debug!(%broker, peer, why, "A connection is closed.");
    }
    drop(connection);
    shared.end(link);
}

struct Connection<'a, S> {
    shared: &'a Shared,
    link: LinkId,
    told: mpsc::Receiver<Told>,
    stream: S,
    buffer: BytesMut,
}

/// A frame, and the memory it was granted.
struct Frame {
    bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Returns why the connection ends.
    async fn run(&mut self) -> Result<(), &'static str> {
        loop {
            let Some(frame) = self.next().await? else {
                return Ok(());
            };
            let (link, bytes) = (self.link, frame.bytes.clone());
            self.shared
                .with(|model, now| model.handle_request(now, link, bytes));
            drop(frame);
            self.answer().await?;
        }
    }

    /// The next frame; a broker that closes meanwhile is heard.
    async fn next(&mut self) -> Result<Option<Frame>, &'static str> {
        let idle = self.shared.limits.idle_time_max;
        while self.buffer.is_empty() {
            tokio::select! {
                told = self.told.recv() => match told {
                    Some(Told::Send(answer)) => self.write(answer).await?,
                    Some(Told::Close) | None => return Ok(None),
                },
                read = timeout(idle, self.stream.read_buf(&mut self.buffer)) => match read {
                    Err(_) => return Err("it was silent for too long"),
                    Ok(Ok(0)) => return Ok(None),
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) => return Err("it can't be read"),
                },
            }
        }
        let read = timeout(self.shared.limits.frame_time_max, self.read_frame());
        read.await.map_err(|_| "a frame took too long")?.map(Some)
    }

    async fn read_frame(&mut self) -> Result<Frame, &'static str> {
        self.read_up_to(4).await?;
        let size = self.buffer.get_i32();
        let size = usize::try_from(size).map_err(|_| "a frame has a negative size")?;
        if size > self.shared.limits.frame_bytes_max {
            return Err("a frame is larger than ServerLimits::frame_bytes_max");
        }
        let memory = if size > FRAME_BYTES_SMALL {
            let kibibytes = u32::try_from(size.div_ceil(1024)).unwrap_or(u32::MAX);
            let memory = Arc::clone(&self.shared.memory)
                .acquire_many_owned(kibibytes)
                .await;
            Some(memory.map_err(|_| "the broker is stopping")?)
        } else {
            None
        };
        self.read_up_to(size).await?;
        let bytes = self.buffer.split_to(size).freeze();
        Ok(Frame {
            bytes,
            _memory: memory,
        })
    }

    async fn read_up_to(&mut self, size: usize) -> Result<(), &'static str> {
        while self.buffer.len() < size {
            // Grows with what has arrived, not with what the peer claims.
            self.buffer
                .reserve((size - self.buffer.len()).min(RESERVED_BYTES_MAX));
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err("it ended inside a frame"),
                Ok(_) => {}
                Err(_) => return Err("it can't be read"),
            }
        }
        Ok(())
    }

    /// Writes what there is to say to a request. While it is parked nothing is read, so that a peer
    /// that goes away is not noticed: as with a real broker.
    async fn answer(&mut self) -> Result<(), &'static str> {
        loop {
            let told = match self.told.try_recv() {
                Ok(told) => told,
                Err(mpsc::error::TryRecvError::Disconnected) => return Err("the broker closed it"),
                Err(mpsc::error::TryRecvError::Empty) => {
                    let link = self.link;
                    if !self.shared.with(|model, _| model.is_busy(link)) && self.told.is_empty() {
                        return Ok(());
                    }
                    self.told.recv().await.ok_or("the broker closed it")?
                }
            };
            match told {
                Told::Send(answer) => self.write(answer).await?,
                Told::Close => return Err("the broker closed it"),
            }
        }
    }

    async fn write(&mut self, answer: Answer) -> Result<(), &'static str> {
        let write = async {
            self.stream.write_all(&answer.frame).await?;
            self.stream.flush().await
        };
        let written = timeout(self.shared.limits.frame_time_max, write).await;
        written
            .map_err(|_| "an answer was not taken in time")?
            .map_err(|_| "it can't be written")
    }
}
