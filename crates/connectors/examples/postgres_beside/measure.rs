//! From the first row to the last: how fast, and at what cost.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use sharegroup_launcher::{Broker, Kafka};

use super::AnyError;
use super::server::Server;

/// What one run came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) rows_per_second: f64,
    /// The same, without the first quarter.
    pub(super) steady: f64,
    /// CPU time of the worker per row, from its first row on, in µs; none where nobody works but this process.
    pub(super) worker: f64,
    /// The same from its start on.
    pub(super) worker_whole: f64,
    /// CPU time of the server per row, in µs.
    pub(super) server: f64,
    /// Peak of the worker's memory, in MiB.
    pub(super) memory: f64,
    /// CPU time of the broker per row, in µs.
    pub(super) broker: f64,
    /// From the start to the first row, in seconds.
    pub(super) start: f64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>6.1} k rows/s (steady {:.1}), worker {:.2} us/row ({:.2} with start), PostgreSQL {:.2}, \
             broker {:.2}, peak {:.0} MiB, first row after {:.1} s",
            self.rows_per_second / 1000.0,
            self.steady / 1000.0,
            self.worker,
            self.worker_whole,
            self.server,
            self.broker,
            self.memory,
            self.start
        )
    }
}

/// Where things stand at a moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    log_end: i64,
}

/// A run that is watched, from before its start.
pub(super) struct Watch<'a> {
    server: &'a Server,
    table: &'a str,
    records: i64,
    begin: Moment,
    server_cpu: Duration,
    broker: Option<u32>,
    broker_cpu: Duration,
}

impl<'a> Watch<'a> {
    pub(super) async fn begin(
        kafka: &Kafka,
        server: &'a Server,
        table: &'a str,
        records: i64,
    ) -> Result<Self, AnyError> {
        let broker = kafka.brokers().first().and_then(Broker::pid);
        Ok(Self {
            server,
            table,
            records,
            broker,
            broker_cpu: broker.and_then(read).unwrap_or_default().cpu,
            server_cpu: server.cpu()?,
            begin: Moment {
                at: Instant::now(),
                log_end: server.log_end().await?,
            },
        })
    }

    /// Waits for the last row. `worker` is the process that writes, `is_alive` says whether it still does.
    pub(super) async fn until_full(
        self,
        worker: Option<u32>,
        mut is_alive: impl FnMut() -> Result<(), AnyError>,
    ) -> Result<Measured, AnyError> {
        let usage = || worker.and_then(read).unwrap_or_default();
        let mut first: Option<(Moment, Usage)> = None;
        let mut growth = vec![self.begin];
        let mut counted = Instant::now();
        loop {
            tokio::time::sleep(POLL).await;
            let now = Moment {
                log_end: self.server.log_end().await?,
                at: Instant::now(),
            };
            let last = growth.last().copied().unwrap_or(now);
            if now.log_end > last.log_end {
                growth.push(now);
            }
            if first.is_none() && now.log_end > self.begin.log_end + NOISE_BYTES {
                first = Some((now, usage()));
            }
            let is_quiet = now.at > last.at + QUIET && now.at > counted + COUNT_EVERY;
            if let Some(first) = first.filter(|_| is_quiet) {
                counted = now.at;
                if self.server.written(self.table).await? == self.records {
                    return self.measured(first, &growth, usage());
                }
            }
            is_alive()?;
            if self.begin.at.elapsed() > WITHIN {
                return Err(format!("{} is not full within {WITHIN:?}", self.table).into());
            }
        }
    }

    fn measured(
        &self,
        (first, at_first): (Moment, Usage),
        growth: &[Moment],
        end: Usage,
    ) -> Result<Measured, AnyError> {
        let server_cpu = self.server.cpu()? - self.server_cpu;
        let broker_cpu = self.broker.and_then(read).unwrap_or_default().cpu;
        let last = growth.last().copied().unwrap_or(first);
        let bytes = last.log_end - first.log_end;
        let quarter = growth
            .iter()
            .find(|moment| moment.log_end >= first.log_end + bytes / 4)
            .unwrap_or(&first);
        let share = (last.log_end - quarter.log_end) as f64 / bytes as f64;
        let records = self.records as f64;
        let per_row = |time: Duration| time.as_secs_f64() * 1e6 / records;
        Ok(Measured {
            rows_per_second: records / (last.at - first.at).as_secs_f64(),
            steady: records * share / (last.at - quarter.at).as_secs_f64(),
            worker: per_row(end.cpu.saturating_sub(at_first.cpu)),
            worker_whole: per_row(end.cpu),
            server: per_row(server_cpu),
            broker: per_row(broker_cpu.saturating_sub(self.broker_cpu)),
            memory: end.peak_kib as f64 / 1024.0,
            start: (first.at - self.begin.at).as_secs_f64(),
        })
    }
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    cpu: Duration,
    peak_kib: u64,
}

fn read(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(Usage {
        cpu: Duration::from_millis(ticks * 10),
        peak_kib: peak.split_whitespace().next()?.parse().ok()?,
    })
}

const POLL: Duration = Duration::from_millis(5);
/// The log is this long without a byte before rows are counted.
const QUIET: Duration = Duration::from_millis(150);
const COUNT_EVERY: Duration = Duration::from_millis(400);
/// What the server writes by itself.
const NOISE_BYTES: i64 = 16 * 1024;
const WITHIN: Duration = Duration::from_secs(300);
