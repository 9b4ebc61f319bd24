//! The model on sockets, or on connections in memory.

mod builder;
mod connection;
mod folder;
mod limits;
mod memory;
mod shared;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sharegroup_wire::BrokerId;
use sharegroup_wire::net::Connector;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

pub use builder::{BrokerBuilder, StartError};
pub use folder::FolderError;
pub use limits::ServerLimits;

use self::memory::MemoryConnector;
use self::shared::Shared;
use crate::model::Model;
use crate::model::faults::{Fault, Rule};
use crate::model::topics::Place;

/// A running cluster: one or more brokers over one model, in this process. Dropping it ends it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use sharegroup_broker::Broker;
///
/// let broker = Broker::builder().topic("orders", 4).start().await?;
/// println!("bootstrap.servers={}", broker.bootstrap_servers());
/// # Ok::<(), sharegroup_broker::StartError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Broker {
    shared: Arc<Shared>,
    /// Where the brokers listen; empty in memory.
    addresses: Vec<(BrokerId, SocketAddr)>,
    bootstrap: String,
    _tasks: JoinSet<()>,
}

impl Broker {
    /// Describes a cluster of one broker without topics, on a free port of 127.0.0.1.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// For a client's `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap_servers(&self) -> &str {
        &self.bootstrap
    }

    /// Where each broker listens; empty in memory.
    #[must_use]
    pub fn addresses(&self) -> &[(BrokerId, SocketAddr)] {
        &self.addresses
    }

    /// Opens connections in memory, by the addresses of [`bootstrap_servers`](Self::bootstrap_servers)
    /// and of metadata. Works beside sockets too.
    #[must_use]
    pub fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(MemoryConnector {
            shared: Arc::clone(&self.shared),
        })
    }

    /// Looks at the model, or changes it. What becomes possible by that happens at once.
    pub fn model<R>(&self, look: impl FnOnce(&mut Model) -> R) -> R {
        self.shared.with(|model, now| {
            let result = look(model);
            model.handle_timeout(now);
            result
        })
    }

    /// Records that are in memory alone because the [folder](BrokerBuilder::dir) can't be written at present;
    /// `None` where all is well. They were refused, and are lost if the broker ends like that.
    #[must_use]
    pub fn unwritten_records(&self) -> Option<u64> {
        self.shared.unwritten_records()
    }

    /// What becomes of the next requests of an API, in their order, on any connection. Behind them
    /// all goes well again.
    pub fn faults(&self, api_key: i16, faults: impl IntoIterator<Item = Fault>) {
        self.model(|model| model.faults.add(api_key, faults));
    }

    /// Adds rules for what goes wrong; their times count from now.
    pub fn script(&self, rules: impl IntoIterator<Item = Rule>) {
        self.shared.with(|model, now| model.script(now, rules));
    }

    /// Cuts all connections to a broker.
    pub fn cut(&self, broker: BrokerId) {
        self.shared.with(|model, now| {
            for link in model.links_of(broker) {
                model.cut(now, link);
            }
        });
    }

    /// Stops and starts a broker: connections, share sessions and locks are gone, deliveries that
    /// were never stored are forgotten.
    pub fn restart(&self, broker: BrokerId) {
        self.model(|model| model.restart(broker));
    }

    /// Stops a broker and starts it with another address. In memory it is reached there alone; with sockets
    /// only metadata changes.
    pub fn readdress(&self, broker: BrokerId, host: &str, port: u16) {
        self.model(|model| model.readdress(broker, host, port));
    }

    /// Moves a partition to another leader.
    pub fn move_leader(&self, place: Place, leader: BrokerId) {
        self.model(|model| model.move_leader(place, leader));
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Wait after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections to one broker.
async fn listen(shared: Arc<Shared>, broker: BrokerId, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, as a rule: some connection ends sooner or later.
                    tracing::warn!(%broker, %error, "A connection could not be accepted.");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        if !shared.with(|model, _| model.is_up(broker)) {
            continue;
        }
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%broker, %error, "Nagle's algorithm stays on.");
        }
        let peer = format!("/{}", peer.ip());
        connections.spawn(connection::serve(Arc::clone(&shared), broker, peer, stream));
    }
}

/// Does what time makes due.
async fn tick(shared: Arc<Shared>) {
    loop {
        let next = shared.pass_time();
        let rearmed = shared.rearm.notified();
        match next {
            Some(next) => tokio::select! {
                () = sleep_until(Instant::from_std(next)) => {}
                () = rearmed => {}
            },
            None => rearmed.await,
        }
    }
}
