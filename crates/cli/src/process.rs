//! What this process uses.

/// Most memory that it held at a time, in bytes; `None` where the system doesn't tell (Linux does).
pub(crate) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_holds_some_memory() {
        assert!(super::peak_memory().unwrap() > 1_000_000);
    }
}
