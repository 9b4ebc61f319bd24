//! The thread that drivers run on: one per process, with a current-thread runtime, so that handlers
//! that block their own threads delay no heartbeat, no renewal and no acknowledgement.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};

static DRIVER: OnceLock<Result<Handle, String>> = OnceLock::new();

/// The driver thread's runtime; the thread starts with the first consumer and ends with the process.
pub(crate) fn handle() -> Result<Handle, String> {
    DRIVER.get_or_init(start).clone()
}

fn start() -> Result<Handle, String> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("sharegroup-driver".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .map_err(|error| error.to_string())?;
    Ok(handle)
}
