//! Times from send to acknowledged.

use std::time::Duration;

use crate::progress::say;

/// What was measured of the records that were sent after the warm-up.
#[derive(Debug, Default)]
pub struct Samples {
    delivered: Vec<u64>,
    acknowledged: Vec<u64>,
    has_begun: bool,
}

impl Samples {
    /// The first measured record is about to be sent.
    pub fn begin(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
            say("first");
        }
    }

    /// A record's times since it was sent.
    pub fn enter(&mut self, delivered: Duration, acknowledged: Duration) {
        self.delivered.push(nanos(delivered));
        self.acknowledged.push(nanos(acknowledged));
    }

    /// Everything is acknowledged. `again` = records that came twice.
    pub fn done(mut self, again: u64) {
        self.delivered.sort_unstable();
        self.acknowledged.sort_unstable();
        let ms = |sorted: &[u64], part: f64| {
            let index = (sorted.len() as f64 * part) as usize;
            let nanos = sorted.get(index.min(sorted.len().saturating_sub(1)));
            nanos.map_or(0.0, |nanos| *nanos as f64 / 1e6)
        };
        let figures: Vec<_> = [("", &self.acknowledged), ("delivered_", &self.delivered)]
            .into_iter()
            .flat_map(|(kind, sorted)| {
                [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)]
                    .map(|(name, part)| format!(r#""{kind}{name}_ms":{:.4}"#, ms(sorted, part)))
            })
            .collect();
        say(&format!(
            r#"done {{"samples":{},"again":{again},{}}}"#,
            self.acknowledged.len(),
            figures.join(",")
        ));
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
