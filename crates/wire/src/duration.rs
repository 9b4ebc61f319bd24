//! Durations in texts for people.

use std::time::Duration;

/// A duration as people say it: `250 ms`, `4.1 s`, `30 s`, `2 min 5 s`, `3 h 1 min`. Rounded to the
/// last digit shown.
///
/// ```
/// use std::time::Duration;
/// use sharegroup_wire::duration::show;
///
/// assert_eq!(show(Duration::from_secs(30)), "30 s");
/// assert_eq!(show(Duration::from_nanos(29_999_999)), "30 ms");
/// ```
#[must_use]
pub fn show(duration: Duration) -> String {
    let tenths = rounded(duration, 100);
    let seconds = rounded(duration, 1_000);
    if rounded(duration, 1) < 1_000 {
        format!("{} ms", rounded(duration, 1))
    } else if tenths < 600 && tenths.is_multiple_of(10) {
        format!("{} s", tenths / 10)
    } else if tenths < 600 {
        format!("{}.{} s", tenths / 10, tenths % 10)
    } else if seconds < 3_600 {
        with_rest(seconds / 60, "min", seconds % 60, "s")
    } else {
        let minutes = rounded(duration, 60_000);
        with_rest(minutes / 60, "h", minutes % 60, "min")
    }
}

/// In units of so many milliseconds, to the nearest.
const fn rounded(duration: Duration, unit_ms: u128) -> u128 {
    (duration.as_micros() + unit_ms * 500) / (unit_ms * 1_000)
}

fn with_rest(count: u128, unit: &str, rest: u128, smaller: &str) -> String {
    match rest {
        0 => format!("{count} {unit}"),
        _ => format!("{count} {unit} {rest} {smaller}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_as_people_say_them() {
        for (microseconds, text) in [
            (0, "0 ms"),
            (250_000, "250 ms"),
            (29_999, "30 ms"),
            (999_400, "999 ms"),
            (999_999, "1 s"),
            (4_123_456, "4.1 s"),
            (4_999_874, "5 s"),
            (30_000_000, "30 s"),
            (59_949_000, "59.9 s"),
            (59_999_000, "1 min"),
            (125_400_000, "2 min 5 s"),
            (3_599_900_000, "1 h"),
            (7_289_999_999, "2 h 1 min"),
        ] {
            assert_eq!(show(Duration::from_micros(microseconds)), text);
        }
        assert!(show(Duration::MAX).contains(" h"));
    }
}
