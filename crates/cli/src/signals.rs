//! SIGTERM and Ctrl-C.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

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

/// Waits for the first signal; the second ends the process at once, whatever it is doing.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    first: watch::Receiver<Option<Sign>>,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system refuses handlers.
    pub(crate) fn listen(screen: &'static Screen) -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // By default it kills. With a handler a write above `ulimit -f` is an error, which fails one task.
        let file_too_large = signal(SignalKind::from_raw(SIGXFSZ))?;
        let (sender, first) = watch::channel(None);
        tokio::spawn(async move {
            let _file_too_large = file_too_large;
            loop {
                let sign = tokio::select! {
                    _ = interrupt.recv() => Sign::Interrupt,
                    _ = terminate.recv() => Sign::Terminate,
                };
                if sender.send_replace(Some(sign)).is_some() {
                    screen.clear();
                    std::process::exit(i32::from(Exit::CutOff(sign).code()));
                }
            }
        });
        Ok(Self { first })
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
        Self { first }
    }
}
