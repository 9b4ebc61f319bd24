//! What is logged, for tests to look at.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Level, span};

/// Keeps the lines of one level.
#[derive(Clone)]
pub(crate) struct Lines {
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Lines {
    pub(crate) fn of(level: Level) -> Self {
        let lines = Arc::default();
        Self { level, lines }
    }

    /// Keeps what this thread logs while the guard lives.
    pub(crate) fn keep(&self) -> DefaultGuard {
        tracing::subscriber::set_default(self.clone())
    }

    /// `message=... field=...`, each.
    pub(crate) fn all(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == self.level
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write as _;
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}
