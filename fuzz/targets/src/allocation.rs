//! Bounds on memory.

/// Most bytes that a decoded message takes per byte of its body (`Message::from_bytes`).
const MESSAGE_BYTES_PER_BYTE: usize = 48;
/// And beside that: the message itself and the shared handle of the frame.
const MESSAGE_BYTES: usize = 1024;

/// Runs `f`, and panics when it allocated more than `limit` bytes at one time.
pub(crate) fn within<T>(limit: usize, f: impl FnOnce() -> T) -> T {
    let mut result = None;
    let held = allocation_counter::measure(|| result = Some(f())).bytes_max;
    assert!(
        held <= limit as u64,
        "{held} bytes allocated, at most {limit} were promised"
    );
    result.expect("it was run")
}

/// What decoding a body of this many bytes may allocate.
pub(crate) const fn of_message(body_bytes: usize) -> usize {
    MESSAGE_BYTES_PER_BYTE * body_bytes + MESSAGE_BYTES
}
