//! Sends records and counts which are confirmed.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sharegroup_consumer::producer::{
    DeliveryFuture, ProduceError, Producer, ProducerConfig, ProducerRecord,
};

/// Records sent between two looks at what is confirmed.
const LOOK_EVERY: u64 = 512;

/// A producer together with the records that are on their way.
#[derive(Debug)]
pub(crate) struct Sender {
    producer: Producer,
    /// In the order of sending. As many as the producer's buffer holds.
    on_their_way: VecDeque<DeliveryFuture>,
    sent: u64,
    confirmed: u64,
}

impl Sender {
    pub(crate) fn new(config: ProducerConfig) -> Self {
        Self {
            producer: Producer::new(config),
            on_their_way: VecDeque::new(),
            sent: 0,
            confirmed: 0,
        }
    }

    /// Records that the producer has taken.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Records that all replicas have.
    pub(crate) const fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Sends a record; waits while the producer's buffer is full.
    ///
    /// # Errors
    /// It was not accepted, or an earlier one was not written.
    ///
    /// # Cancel safety
    /// A call that is dropped has sent nothing.
    pub(crate) async fn send(&mut self, record: ProducerRecord) -> Result<(), ProduceError> {
        let delivery = self.producer.send(record).await?;
        self.on_their_way.push_back(delivery);
        self.sent += 1;
        if self.sent.is_multiple_of(LOOK_EVERY) {
            self.look()?;
        }
        Ok(())
    }

    /// Counts what is confirmed by now.
    ///
    /// # Errors
    /// A record was not written.
    pub(crate) fn look(&mut self) -> Result<(), ProduceError> {
        let mut context = Context::from_waker(Waker::noop());
        while let Some(delivery) = self.on_their_way.front_mut() {
            match Pin::new(delivery).poll(&mut context) {
                Poll::Pending => break,
                Poll::Ready(outcome) => {
                    self.on_their_way.pop_front();
                    outcome?;
                    self.confirmed += 1;
                }
            }
        }
        Ok(())
    }

    /// Waits until everything is confirmed, then closes the producer.
    ///
    /// # Errors
    /// A record was not written.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn finish(&mut self, within: Duration) -> Result<(), ProduceError> {
        let closed = self.producer.close(within).await;
        // Which record failed first tells more than that the producer was closed.
        self.look()?;
        closed
    }
}
