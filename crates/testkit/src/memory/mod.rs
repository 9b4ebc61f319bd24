//! The model behind in-memory connections: what the real driver talks to under paused time.

mod faults;
mod server;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sharegroup_wire::BrokerId;
use sharegroup_wire::net::{Address, ConnectFuture, Connector};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::model::{Fetched, LinkId, ModelCluster};

pub use faults::{Arrival, Fault};

use faults::Faults;

/// Bytes that a connection holds in each direction.
const PIPE_BYTES: usize = 1024 * 1024;

/// A cluster whose brokers listen in memory. A cheap handle; all handles are the same cluster.
#[derive(Debug, Clone)]
pub struct MemoryCluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Something may have become ready, or a connection is to be cut.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    model: ModelCluster,
    faults: Faults,
    /// Brokers that refuse connections.
    down: BTreeSet<BrokerId>,
    /// Connections that a test wants cut.
    cut: BTreeSet<LinkId>,
    live: HashMap<LinkId, BrokerId>,
    /// Answers of parked fetches that wait for their connection's task.
    ready: HashMap<LinkId, Fetched>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryCluster {
    /// Brokers 1 to `brokers`.
    #[must_use]
    pub fn new(brokers: i32) -> Self {
        let state = State {
            model: ModelCluster::new(brokers),
            faults: Faults::default(),
            down: BTreeSet::new(),
            cut: BTreeSet::new(),
            live: HashMap::new(),
            ready: HashMap::new(),
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }

    /// For a client's `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        format!("{}:{}", ModelCluster::host(BrokerId(1)), ModelCluster::PORT)
    }

    /// Opens connections to the brokers.
    #[must_use]
    pub fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(MemoryConnector {
            shared: Arc::clone(&self.shared),
        })
    }

    /// Looks at the model, or changes it.
    pub fn model<R>(&self, look: impl FnOnce(&mut ModelCluster) -> R) -> R {
        let result = look(&mut self.shared.state().model);
        self.shared.changed.notify_waiters();
        result
    }

    /// What becomes of the next requests of an API, in their order, on any connection. Behind them
    /// all goes well again.
    pub fn faults(&self, api_key: i16, faults: impl IntoIterator<Item = Fault>) {
        self.shared.state().faults.add(api_key, faults);
    }

    /// Every request that reached a broker, in its order.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.state().faults.arrivals.clone()
    }

    /// How many requests of an API reached a broker.
    #[must_use]
    pub fn requests(&self, api_key: i16) -> usize {
        self.shared
            .state()
            .faults
            .arrivals
            .iter()
            .filter(|arrival| arrival.api_key == api_key)
            .count()
    }

    /// Cuts all connections to a broker.
    pub fn cut(&self, broker: BrokerId) {
        let mut state = self.shared.state();
        let links = state
            .live
            .iter()
            .filter(|(_, of)| **of == broker)
            .map(|(link, _)| *link);
        let links: Vec<LinkId> = links.collect();
        state.cut.extend(links);
        drop(state);
        self.shared.changed.notify_waiters();
    }

    /// Stops and starts a broker: connections, sessions and locks are gone.
    pub fn restart(&self, broker: BrokerId) {
        self.cut(broker);
        self.shared.state().model.restart(broker);
    }

    /// Lets a broker refuse connections, or take them again.
    pub fn set_down(&self, broker: BrokerId, is_down: bool) {
        let mut state = self.shared.state();
        if is_down {
            state.down.insert(broker);
        } else {
            state.down.remove(&broker);
        }
    }
}

#[derive(Debug)]
struct MemoryConnector {
    shared: Arc<Shared>,
}

impl MemoryConnector {
    fn broker(&self, address: &Address) -> Option<BrokerId> {
        let state = self.shared.state();
        let broker = state
            .model
            .brokers()
            .find(|broker| ModelCluster::host(*broker) == address.host)?;
        (!state.down.contains(&broker) && address.port == ModelCluster::PORT).then_some(broker)
    }
}

impl Connector for MemoryConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move {
            let broker = self
                .broker(address)
                .ok_or(io::ErrorKind::ConnectionRefused)?;
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            let link = {
                let mut state = self.shared.state();
                let link = state.model.connect(broker);
                state.live.insert(link, broker);
                link
            };
            tokio::spawn(server::serve(
                Arc::clone(&self.shared),
                theirs,
                link,
                broker,
            ));
            Ok(Box::new(ours) as _)
        })
    }
}

/// The time of the model.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
