//! Everything that a sink and its worker say, listened to for secrets.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Metadata, Subscriber};

/// Listens for the secrets of one target.
#[derive(Debug)]
pub(super) struct Heard {
    secrets: Vec<String>,
    /// Where secrets were.
    places: Mutex<Vec<String>>,
    hears_logs: bool,
}

impl Heard {
    /// Listens from now on, to the process's logs as well where nobody else listens to them.
    pub(super) fn new(secrets: Vec<String>) -> Arc<Self> {
        let heard = Arc::new(Self {
            secrets: secrets.into_iter().filter(|s| !s.is_empty()).collect(),
            places: Mutex::default(),
            hears_logs: *IS_INSTALLED,
        });
        let mut listeners = lock(&LISTENERS);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&heard));
        heard
    }

    pub(super) const fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }

    pub(super) const fn hears_logs(&self) -> bool {
        self.hears_logs
    }

    /// Something that was said.
    pub(super) fn hear(&self, place: &str, text: &str) {
        let mut found = self.secrets.iter().enumerate();
        if let Some((number, _)) = found.find(|(_, secret)| text.contains(secret.as_str())) {
            // Not the text itself: it holds the secret.
            let place = format!("{place} (secret {number})");
            let mut places = lock(&self.places);
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }

    /// Where secrets were.
    pub(super) fn places(&self) -> Vec<String> {
        lock(&self.places).clone()
    }
}

static LISTENERS: Mutex<Vec<Weak<Heard>>> = Mutex::new(Vec::new());
/// Whether the logs of this process come here: another subscriber may have been there before.
static IS_INSTALLED: LazyLock<bool> = LazyLock::new(|| set_global_default(Logs).is_ok());

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each write under these locks is whole.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listeners() -> Vec<Arc<Heard>> {
    lock(&LISTENERS).iter().filter_map(Weak::upgrade).collect()
}

/// Hands every line of the log to whoever listens.
#[derive(Debug)]
struct Logs;

impl Subscriber for Logs {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        let listeners = lock(&LISTENERS);
        listeners.iter().any(|listener| listener.strong_count() > 0)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line::default();
        span.record(&mut line);
        line.tell(span.metadata());
        // They are not told apart.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line::default();
        values.record(&mut line);
        for heard in listeners() {
            heard.hear("a span of the log", &line.0);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        line.tell(event.metadata());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of a line.
#[derive(Default)]
struct Line(String);

impl Line {
    fn tell(&self, metadata: &Metadata<'_>) {
        for heard in listeners() {
            let place = format!("the log of {}, {}", metadata.target(), metadata.level());
            heard.hear(&place, &self.0);
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }

    /// As it is: Debug would escape it.
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 += &format!("{}={value} ", field.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_texts_and_in_the_log_of_any_thread_and_is_not_repeated() {
        let heard = Heard::new(vec!["hunter2-\"quoted\"".to_owned()]);
        heard.hear("an error", "nothing here");
        assert!(heard.places().is_empty());
        heard.hear("an error", "password=hunter2-\"quoted\"");
        std::thread::scope(|scope| {
            scope.spawn(|| tracing::debug!(password = "hunter2-\"quoted\"", "Logged in."));
        });
        let places = heard.places();
        assert_eq!(places.len(), 2, "{places:?}");
        assert!(places[1].contains("DEBUG"), "{places:?}");
        assert!(!format!("{places:?}").contains("hunter2"), "{places:?}");
    }
}
