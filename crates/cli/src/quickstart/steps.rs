//! Steps with their times.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::screen::Screen;

/// Prints a line per step; on a terminal also what is going on.
#[derive(Debug)]
pub(super) struct Steps {
    screen: &'static Screen,
    number: u32,
}

/// Width of a step's text.
const WIDTH: usize = 68;
const SPINNER: [&str; 8] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧"];

impl Steps {
    pub(super) const fn new(screen: &'static Screen) -> Self {
        Self { screen, number: 0 }
    }

    /// Waits for work while a line says that it goes on.
    pub(super) async fn wait<T>(
        &self,
        doing: impl Fn() -> String,
        work: impl Future<Output = T>,
    ) -> T {
        let start = Instant::now();
        let spin = async {
            let mut ticks = interval(Duration::from_millis(100));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut turn = 0;
            loop {
                ticks.tick().await;
                let sign = SPINNER[turn % SPINNER.len()];
                turn += 1;
                let seconds = start.elapsed().as_secs_f64();
                self.screen
                    .progress(&format!(" {sign}  {} ({seconds:.1} s)", doing()));
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = work => outcome,
            never = spin => never,
        };
        self.screen.clear();
        outcome
    }

    /// Says that a step is done.
    pub(super) fn done(&mut self, what: &str, time: Duration) {
        self.number += 1;
        let number = self.screen.green(&format!("{:>2}", self.number));
        let time = self.screen.dim(&format!("{:>8}", shown(time)));
        self.screen
            .line(&format!("{number}  {what:<WIDTH$} {time}"));
    }
}

fn shown(time: Duration) -> String {
    if time < Duration::from_millis(100) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
