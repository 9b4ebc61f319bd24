//! Keeps what one thread logs.
//!
//! One subscriber for the whole process, and each thread's log behind it. A subscriber of one thread alone
//! would lose lines: what another thread logs first, without a subscriber, `tracing` may remember as never
//! wanted (`callsite.rs` of tracing-core 0.1.36, `Rebuilder::JustOne`).

use std::cell::RefCell;
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span;

thread_local! {
    static CURRENT: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// The lines of a thread, as long as its [`Guard`] lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// From now on, until the guard is dropped, keeps what this thread logs.
    pub(crate) fn start() -> (Self, Guard) {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| tracing::subscriber::set_global_default(Threads).unwrap());
        let log = Self::default();
        CURRENT.set(Some(log.clone()));
        (log, Guard)
    }

    /// The lines that contain `part`.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let found = lines.iter().filter(|line| line.contains(part));
        found.cloned().collect()
    }
}

/// Ends the log of this thread when dropped.
pub(crate) struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

struct Threads;

impl tracing::Subscriber for Threads {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        CURRENT.with_borrow(|log| {
            let Some(Log(lines)) = log else {
                return;
            };
            let mut line = Line(event.metadata().level().to_string());
            event.record(&mut line);
            lines.lock().unwrap().push(line.0);
        });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

#[test]
fn what_another_thread_logged_first_is_kept() {
    fn say() {
        tracing::debug!("said");
    }
    let (log, _guard) = Log::start();
    std::thread::spawn(say).join().unwrap();
    say();
    assert_eq!(log.lines("said").len(), 1);
}
