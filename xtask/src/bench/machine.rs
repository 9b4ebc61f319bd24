//! Where and when it was measured.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

/// Processor, memory and kernel.
pub(super) fn describe() -> String {
    let line = |file: &str, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let cores = available_parallelism().map_or(1, usize::from);
    let memory = line("/proc/meminfo", "MemTotal");
    let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cores} cores of {}, {} GiB, Linux {}",
        line("/proc/cpuinfo", "model name"),
        kib.div_ceil(1 << 20),
        kernel.trim()
    )
}

/// How many wanted a core over the last minute: on a busy machine only ratios mean something.
pub(super) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// The time in UTC.
pub(super) fn date() -> String {
    let output = Command::new("date")
        .args(["-u", "+%Y-%m-%dT%H:%MZ"])
        .output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}
