//! Logs: `tracing` to standard error.

use std::fmt;
use std::time::Instant;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::args::{LogArgs, LogFormat};
use crate::screen::Screen;

/// Starts logging: at `--log-level`, else `RUST_LOG`, else the command's own level.
pub(crate) fn start(
    args: &LogArgs,
    default_level: &'static str,
    screen: &'static Screen,
) -> anyhow::Result<()> {
    let (filter, from) = match (&args.level, std::env::var("RUST_LOG")) {
        (Some(level), _) => (level.clone(), "--log-level"),
        (None, Ok(filter)) if !filter.trim().is_empty() => (filter, "RUST_LOG"),
        _ => (default_level.to_owned(), "the default level"),
    };
    // A bare word that is no level would be taken for a module's name, and silence everything else.
    let is_word = filter.chars().all(char::is_alphanumeric);
    let is_level = LEVELS
        .iter()
        .any(|level| filter.eq_ignore_ascii_case(level));
    anyhow::ensure!(
        !is_word || is_level,
        "{from} is `{filter}`, but must be one of {} or a filter such as warn,sharegroup_consumer=debug",
        LEVELS.join(", ")
    );
    let filter = EnvFilter::try_new(&filter)
        .with_context(|| format!("{from} is `{filter}`, which is no filter such as info or warn,sharegroup_consumer=debug"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(screen)
        .with_target(false);
    match args.format {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .init(),
        LogFormat::Text if screen.is_terminal() => builder
            .with_ansi(screen.has_colors())
            .with_timer(SinceStart(Instant::now()))
            .init(),
        LogFormat::Text => builder.with_ansi(false).init(),
    }
    Ok(())
}

/// Seconds since the program started: what somebody who watches it wants to know.
struct SinceStart(Instant);

impl FormatTime for SinceStart {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{:>7.1} s", self.0.elapsed().as_secs_f64())
    }
}

/// What a bare word may be.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
