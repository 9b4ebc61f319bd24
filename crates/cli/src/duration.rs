//! Durations as people write them: `5s`, `500ms`, `2m`, `1h`.

use std::time::Duration;

pub(crate) use sharegroup_wire::duration::show;

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Reads a whole or decimal number with its unit. A number alone is refused: Kafka's keys count milliseconds, people
/// seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (number, unit) = (number.trim_end(), unit.to_ascii_lowercase());
    let expected = "write a number with its unit: 500ms, 5s, 2m or 1h";
    if unit.is_empty() {
        return Err(format!("has no unit; {expected}"));
    }
    let Some((_, unit_ms)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("has the unknown unit `{unit}`; {expected}"));
    };
    let is_decimal = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = Some(number)
        .filter(|_| is_decimal)
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| expected.to_owned())?;
    #[expect(clippy::cast_precision_loss, reason = "units are small")]
    let seconds = number * *unit_ms as f64 / 1_000.0;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| "is longer than a year".to_owned())
}

/// Longer ones would overflow deadlines.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3_600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("5s", 5_000),
            ("1.5s", 1_500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            (" 5 S ", 5_000),
            ("0s", 0),
        ] {
            assert_eq!(
                parse(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_duration_says_how_to_write_one() {
        for text in ["", "5", "s", "-5s", "5d", "5 sec", "1e3s", "5s5", "∞s", "."] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("500ms"), "{text}: {error}");
        }
        assert!(parse("99999999999h").is_err());
    }
}
