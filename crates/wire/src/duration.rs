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

/// Reads `PnDTnHnMnS` of ISO 8601, as `java.time.Duration` does, but without signs: `PT1H`, `P1DT2H`, `PT0.5S`.
/// `None`: it isn't one, or is too long.
///
/// ```
/// use std::time::Duration;
/// use sharegroup_wire::duration::from_iso;
///
/// assert_eq!(from_iso("PT1M30S"), Some(Duration::from_secs(90)));
/// assert_eq!(from_iso("90 s"), None);
/// ```
#[must_use]
pub fn from_iso(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('P')?;
    let (days, time) = text
        .split_once('T')
        .map_or((text, None), |(days, time)| (days, Some(time)));
    if time.map_or(days.is_empty(), str::is_empty) {
        return None;
    }
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let mut seconds = 0.0;
    for (part, units) in [
        (days, &[('D', 86_400.0)][..]),
        (
            time.unwrap_or_default(),
            &[('H', 3600.0), ('M', 60.0), ('S', 1.0)],
        ),
    ] {
        let mut rest = part;
        for (unit, size) in units {
            if let Some((number, behind)) = rest.split_once(*unit) {
                let number = Some(number).filter(|number| number.chars().all(is_digit))?;
                seconds += number.parse::<f64>().ok()? * size;
                rest = behind;
            }
        }
        if !rest.is_empty() {
            return None;
        }
    }
    Duration::try_from_secs_f64(seconds).ok()
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

    #[test]
    fn durations_are_read_as_java_does() {
        let seconds = |text| from_iso(text).map(|duration| duration.as_secs_f64());
        assert_eq!(seconds("P1D"), Some(86_400.0));
        assert_eq!(seconds("PT1H30M"), Some(5400.0));
        assert_eq!(seconds("P1DT0.5S"), Some(86_400.5));
        for bad in [
            "", "P", "1D", "PT1X", "PTH", "P1H", "PT", "P1DT", "PT+1H", "PT-1H", "PT1e3S", "P.D",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
