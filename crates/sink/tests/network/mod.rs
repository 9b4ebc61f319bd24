//! The network of one worker, which ends with it.
#![allow(dead_code, reason = "each user needs its part")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sharegroup_wire::net::{Address, ConnectFuture, Connector};
use tokio::io::{copy_bidirectional, duplex};
use tokio::sync::watch;

/// Bytes on their way in one direction.
const PIPE: usize = 64 * 1024;

/// Connects one worker to the brokers until it is killed.
#[derive(Debug)]
pub(crate) struct Network {
    brokers: Arc<dyn Connector>,
    dead: Mutex<watch::Sender<bool>>,
    is_closed: AtomicBool,
}

impl Network {
    pub(crate) fn new(brokers: Arc<dyn Connector>) -> Self {
        Self {
            brokers,
            dead: Mutex::new(watch::Sender::new(false)),
            is_closed: AtomicBool::new(false),
        }
    }

    /// No connection is made any more; those that are there go on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// All connections end, and none is made any more.
    pub(crate) fn kill(&self) {
        self.close();
        self.dead.lock().unwrap().send_replace(true);
    }
}

impl Connector for Network {
    fn connect<'a>(&'a self, address: &'a Address) -> ConnectFuture<'a> {
        Box::pin(async move {
            let mut dead = self.dead.lock().unwrap().subscribe();
            if self.is_closed.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let mut far = self.brokers.connect(address).await?;
            let (near, mut middle) = duplex(PIPE);
            tokio::spawn(async move {
                tokio::select! {
                    _ = copy_bidirectional(&mut middle, &mut far) => {}
                    _ = dead.wait_for(|dead| *dead) => {}
                }
            });
            Ok(Box::new(near) as _)
        })
    }
}
