//! CPU time and memory of a process that is still running, from `/proc` (Linux).

use std::fs;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// What a process used up to the last look, at most 5 ms before its end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Peak of its resident memory, in KiB.
    pub(crate) peak_kib: u64,
}

/// Waits for a process, and looks at it every 5 ms; `look` is called each time.
pub(crate) fn watch(
    child: &mut Child,
    within: Duration,
    mut look: impl FnMut(Instant),
) -> anyhow::Result<(ExitStatus, Usage)> {
    let deadline = Instant::now() + within;
    let mut usage = Usage::default();
    loop {
        if let Some(seen) = read(child.id()) {
            usage = seen;
        }
        look(Instant::now());
        if let Some(status) = child.try_wait()? {
            return Ok((status, usage));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("not done within {} s", within.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What a running process has used so far.
pub(crate) fn read(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the command's name, which may hold spaces: fields 14 and 15 of proc(5), in ticks of 10 ms.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let peak_kib = peak.split_whitespace().next()?.parse().ok()?;
    Some(Usage {
        cpu: Duration::from_millis(ticks * 10),
        peak_kib,
    })
}

/// The median of some figures.
pub(crate) fn median(mut figures: Vec<f64>) -> anyhow::Result<f64> {
    figures.sort_by(f64::total_cmp);
    figures
        .get(figures.len() / 2)
        .copied()
        .context("no figures")
}
