//! SIGTERM and Ctrl-C.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::exit::{Exit, Interrupted};
use crate::screen::Screen;

/// The same number on Linux (but for MIPS), macOS and the BSDs.
const SIGXFSZ: i32 = 25;

/// A signal that asks the program to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Sign {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "Ctrl-C",
            Self::Terminate => "SIGTERM",
        }
    }
}

/// Waits for the first signal; the second ends the process at once, whatever it is doing. Its thread is its own: a
/// log that nobody reads blocks all others.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    first: watch::Receiver<Option<Sign>>,
    /// Longest time from the first signal to the end.
    bound: Arc<OnceLock<Duration>>,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system refuses handlers.
    pub(crate) fn listen(screen: &'static Screen) -> io::Result<Self> {
        let (sender, first) = watch::channel(None);
        let signals = Self {
            first,
            bound: Arc::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build()?;
        let (mut interrupt, mut terminate, file_too_large) = {
            let _context = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                // By default it kills. With a handler a write above `ulimit -f` is an error, which fails one task.
                signal(SignalKind::from_raw(SIGXFSZ))?,
            )
        };
        let bound = Arc::clone(&signals.bound);
        let listening = async move {
            let _file_too_large = file_too_large;
            let mut sign = async || {
                tokio::select! {
                    _ = interrupt.recv() => Sign::Interrupt,
                    _ = terminate.recv() => Sign::Terminate,
                }
            };
            let first = sign().await;
            sender.send_replace(Some(first));
            let last = match bound.get() {
                Some(bound) => timeout(*bound, sign()).await.unwrap_or(first),
                None => sign().await,
            };
            screen.clear_if_free();
            std::process::exit(i32::from(Exit::CutOff(last).code()));
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(listening))?;
        Ok(signals)
    }

    /// Ends the process so long after the first signal, if nothing else has: whoever was to end it may be blocked.
    pub(crate) fn end_within(&self, bound: Duration) {
        self.bound.get_or_init(|| bound);
    }

    /// Reads something that may let it wait for ever, such as a file that is a pipe.
    ///
    /// # Errors
    /// [`Interrupted`]: a signal came first; the thread that reads is left behind.
    ///
    /// # Cancel safety
    /// The reading goes on.
    pub(crate) async fn reading<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        tokio::select! {
            done = tokio::task::spawn_blocking(read) => Ok(done?),
            sign = self.first() => Err(Interrupted(sign).into()),
        }
    }

    /// Waits for the first signal; returns at once after it.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn first(&self) -> Sign {
        let mut first = self.first.clone();
        loop {
            if let Some(sign) = *first.borrow_and_update() {
                return sign;
            }
            if first.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
impl Signals {
    /// No signal ever comes.
    pub(crate) fn none() -> Self {
        let (_, first) = watch::channel(None);
        let bound = Arc::default();
        Self { first, bound }
    }
}
