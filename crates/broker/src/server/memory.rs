//! Connections in memory, for tests under paused time.

use std::io;
use std::sync::Arc;

use sharegroup_wire::BrokerId;
use sharegroup_wire::net::{Address, ConnectFuture, Connector};

use super::connection;
use super::shared::Shared;

/// Bytes that a connection holds in each direction.
const PIPE_BYTES: usize = 1024 * 1024;

/// Opens connections to the brokers without sockets, by the addresses that the brokers tell.
#[derive(Debug)]
pub(super) struct MemoryConnector {
    pub(super) shared: Arc<Shared>,
}

impl MemoryConnector {
    fn broker(&self, address: &Address) -> Option<BrokerId> {
        self.shared.with(|model, _| {
            let mut nodes = model.nodes.iter();
            let found =
                nodes.find(|(_, node)| node.host == address.host && node.port == address.port);
            found.filter(|(_, node)| node.is_up).map(|(id, _)| *id)
        })
    }
}

impl Connector for MemoryConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move {
            let broker = self
                .broker(address)
                .ok_or(io::ErrorKind::ConnectionRefused)?;
            let (near, far) = tokio::io::duplex(PIPE_BYTES);
            let shared = Arc::clone(&self.shared);
            tokio::spawn(connection::serve(shared, broker, "/memory".to_owned(), far));
            Ok(Box::new(near) as _)
        })
    }
}
