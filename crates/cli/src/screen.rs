//! What a person sees: results on standard output; messages, logs and one progress line on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

use crate::args::LogFormat;

/// Standard error. Whatever is written goes above the progress line.
#[derive(Debug)]
pub(crate) struct Screen {
    is_terminal: bool,
    has_colors: bool,
    format: LogFormat,
    /// What stands in the last line now.
    progress: Mutex<String>,
}

static STDERR: OnceLock<Screen> = OnceLock::new();

/// To the start of the line, which is cleared.
const CLEAR_LINE: &str = "\r\x1b[2K";
/// A line that is longer than the screen is cut, not wrapped: only one line can be cleared later.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

impl Screen {
    /// The process's only one.
    pub(crate) fn stderr(format: LogFormat) -> &'static Self {
        STDERR.get_or_init(|| {
            let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
            let is_terminal = io::stderr().is_terminal() && !is_dumb && format == LogFormat::Text;
            Self {
                is_terminal,
                has_colors: is_terminal && std::env::var_os("NO_COLOR").is_none(),
                format,
                progress: Mutex::default(),
            }
        })
    }

    /// Whether somebody watches.
    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Whether colors may be used.
    pub(crate) const fn has_colors(&self) -> bool {
        self.has_colors
    }

    /// Replaces the progress line. Nothing happens off a terminal.
    pub(crate) fn progress(&self, line: &str) {
        if !self.is_terminal {
            return;
        }
        let mut progress = self.lock();
        line.clone_into(&mut progress);
        draw(&format!("{CLEAR_LINE}{NO_WRAP}{line}{WRAP}"));
    }

    /// Removes the progress line.
    pub(crate) fn clear(&self) {
        let mut progress = self.lock();
        if !progress.is_empty() {
            progress.clear();
            draw(CLEAR_LINE);
        }
    }

    /// The same, unless somebody is writing, who may wait for a reader for ever.
    pub(crate) fn clear_if_free(&self) {
        let free = self.progress.try_lock();
        if free.is_ok_and(|progress| !progress.is_empty()) {
            draw(CLEAR_LINE);
        }
    }

    /// Writes a line for people.
    pub(crate) fn line(&self, text: &str) {
        self.above_progress(format!("{text}\n").as_bytes());
    }

    /// Says what is wrong.
    pub(crate) fn error(&self, text: &str) {
        match self.format {
            LogFormat::Json => tracing::error!("{text}"),
            LogFormat::Text => self.line(&format!("{} {text}", self.red("error:"))),
        }
    }

    /// Says what is odd.
    pub(crate) fn warning(&self, text: &str) {
        match self.format {
            LogFormat::Json => tracing::warn!("{text}"),
            LogFormat::Text => self.line(&format!("{} {text}", self.yellow("warning:"))),
        }
    }

    /// Says what may be of interest.
    pub(crate) fn note(&self, text: &str) {
        match self.format {
            LogFormat::Json => tracing::info!("{text}"),
            LogFormat::Text => self.line(text),
        }
    }

    pub(crate) fn red(&self, text: &str) -> String {
        self.colored("31", text)
    }

    pub(crate) fn yellow(&self, text: &str) -> String {
        self.colored("33", text)
    }

    pub(crate) fn green(&self, text: &str) -> String {
        self.colored("32", text)
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.colored("1", text)
    }

    pub(crate) fn dim(&self, text: &str) -> String {
        self.colored("2", text)
    }

    fn colored(&self, code: &str, text: &str) -> String {
        if self.has_colors {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn above_progress(&self, bytes: &[u8]) {
        let progress = self.lock();
        let mut stderr = io::stderr().lock();
        let written = if progress.is_empty() {
            stderr.write_all(bytes)
        } else {
            stderr
                .write_all(CLEAR_LINE.as_bytes())
                .and_then(|()| stderr.write_all(bytes))
                .and_then(|()| write!(stderr, "{NO_WRAP}{progress}{WRAP}"))
        };
        // There is nowhere else to say that standard error is gone.
        drop(written.and_then(|()| stderr.flush()));
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn draw(text: &str) {
    let mut stderr = io::stderr().lock();
    // As above.
    drop(
        stderr
            .write_all(text.as_bytes())
            .and_then(|()| stderr.flush()),
    );
}

/// Writes one log event above the progress line.
#[derive(Debug)]
pub(crate) struct LogWriter(&'static Screen);

impl io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.above_progress(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for &'static Screen {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        LogWriter(self)
    }
}

/// Writes a result to standard output. A reader that is gone has seen what it wanted.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
