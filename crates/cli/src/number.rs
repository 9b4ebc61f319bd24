//! Numbers for people.

use std::time::Duration;

/// With a comma between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Things per second; 0 where no time has passed.
pub(crate) fn per_second(things: u64, time: Duration) -> u64 {
    let micros = time.as_micros();
    if micros == 0 {
        return 0;
    }
    u64::try_from(u128::from(things) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

/// `1 task`, `2 tasks`.
pub(crate) fn plural(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {thing}{s}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn rate_of_no_time_is_zero() {
        assert_eq!(per_second(5, Duration::ZERO), 0);
        assert_eq!(per_second(5, Duration::from_millis(500)), 10);
    }
}
