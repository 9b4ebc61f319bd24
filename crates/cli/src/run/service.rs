//! What a service of systemd tells it (`Type=notify`, or `notify-reload`): sd_notify(3), without its library.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sharegroup_sink::worker::Worker;
use tokio::time::{Instant, sleep_until};

use super::progress::counted;

/// Who is told; nobody where the program is no service.
#[derive(Debug)]
pub(crate) struct Service {
    socket: Option<UnixDatagram>,
    /// How often a sign of life is wanted.
    watchdog: Option<Duration>,
    /// Whether it was told that the program is ready: before that there is no reload for it.
    is_ready: AtomicBool,
}

impl Service {
    /// As `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` say.
    pub(crate) fn from_environment() -> Self {
        let variable = |name: &str| std::env::var_os(name);
        let socket = variable("NOTIFY_SOCKET").and_then(|place| match connect(&place) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET can't be used: the service manager is told nothing.");
                None
            }
        });
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let own = u64::from(std::process::id());
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == own);
        let watchdog = number("WATCHDOG_USEC").filter(|usec| is_meant && *usec > 0);
        Self {
            watchdog: watchdog.map(Duration::from_micros),
            socket,
            is_ready: AtomicBool::new(false),
        }
    }

    fn ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
        self.tell("READY=1");
    }

    /// It has read its files again. What isn't ready yet says so once it is.
    pub(crate) fn reloaded(&self) {
        if self.is_ready.load(Ordering::Relaxed) {
            self.tell("READY=1");
        }
    }

    /// It reads its files again.
    pub(crate) fn reloading(&self) {
        if !self.is_ready.load(Ordering::Relaxed) {
            return;
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// It finishes what it holds.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=Stopping: finishing what is held, releasing the rest.");
    }

    /// Says that it is ready once every task has joined its group, or has failed; then how it stands, and that it
    /// lives. Ends only by being dropped.
    pub(crate) async fn follow(&self, worker: &Worker) -> Infallible {
        if self.socket.is_none() {
            return std::future::pending().await;
        }
        self.live(worker.all_decided()).await;
        self.ready();
        loop {
            self.tell(&format!("STATUS={}", counted(&worker.status())));
            self.live(sleep_until(Instant::now() + STATUS_EVERY)).await;
        }
    }

    /// Gives signs of life until something has happened.
    async fn live(&self, happens: impl Future<Output = ()>) {
        let mut happens = std::pin::pin!(happens);
        loop {
            let sign = async {
                match self.watchdog {
                    // As sd_watchdog_enabled(3) advises.
                    Some(every) => sleep_until(Instant::now() + every / 2).await,
                    None => std::future::pending().await,
                }
            };
            if self.watchdog.is_some() {
                self.tell("WATCHDOG=1");
            }
            tokio::select! {
                () = &mut happens => return,
                () = sign => {}
            }
        }
    }

    fn tell(&self, what: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(what.as_bytes())
        {
            tracing::debug!(%error, "The service manager was not told: {what}.");
        }
    }
}

/// How often the service manager is told how it stands.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// A path, or `@name` for a name without a file.
fn connect(place: &OsStr) -> io::Result<UnixDatagram> {
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => abstract_address(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // What it isn't told now it hears later: nobody waits for it.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_a_path_or_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("sharegroup-notify-{}", std::process::id()));
        drop(std::fs::remove_file(&path));
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("sharegroup-notify-{}", std::process::id());
        let address = abstract_address(name.as_bytes()).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        for (place, hears) in [
            (path.clone().into_os_string(), by_path),
            (format!("@{name}").into(), by_name),
        ] {
            let service = Service {
                socket: Some(connect(&place).unwrap()),
                watchdog: None,
                is_ready: AtomicBool::new(false),
            };
            // Before it is ready it says nothing of reloads.
            service.reloading();
            service.reloaded();
            service.ready();
            service.reloading();
            let heard = || {
                let mut bytes = [0; 256];
                let length = hears.recv(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..length]).into_owned()
            };
            assert_eq!(heard(), "READY=1");
            let reloading = heard();
            let micros = reloading
                .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
                .unwrap();
            assert!(micros.parse::<u64>().unwrap() > 0);
        }
        std::fs::remove_file(&path).unwrap();
        let gone = connect(path.as_os_str()).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
