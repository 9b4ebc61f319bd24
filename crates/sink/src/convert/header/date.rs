//! Dates and times in ISO 8601, read as leniently as Java's `SimpleDateFormat` reads them, in UTC.

use crate::data::{MILLIS_PER_DAY, Schema, SchemaAndValue, Value};

/// A date, a time or a timestamp, told apart by its length: `2024-02-29`, `12:34:56.789Z`,
/// `2024-02-29T12:34:56.789Z`; colons may be escaped. The fields may be out of range: a 30th of February
/// is the 1st of March.
pub(super) fn parse(token: &str) -> Option<SchemaAndValue> {
    let text = token.replace("\\:", ":");
    // A longer text is none, and has no bytes to count.
    match text.encode_utf16().take(TIMESTAMP_UNITS + 1).count() {
        DATE_UNITS => {
            let mut fields = Fields(&text);
            let millis = fields.date()?.checked_mul(MILLIS_PER_DAY)?;
            Some(SchemaAndValue::new(Schema::date(), Value::Date(millis)))
        }
        TIME_UNITS => {
            let millis = Fields(&text).time()?;
            Some(SchemaAndValue::new(Schema::time(), Value::Time(millis)))
        }
        TIMESTAMP_UNITS => {
            let mut fields = Fields(&text);
            let days = fields.date()?;
            fields.literal('T')?;
            let millis = days
                .checked_mul(MILLIS_PER_DAY)?
                .checked_add(fields.time()?)?;
            Some(SchemaAndValue::new(
                Schema::timestamp(),
                Value::Timestamp(millis),
            ))
        }
        _ => None,
    }
}

/// A moment as Connect writes it: below a day a time, at midnight a date, else a timestamp.
pub(super) fn text_of(millis: i64) -> String {
    let of_day = millis.rem_euclid(MILLIS_PER_DAY);
    let (seconds, fraction) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let time = format!("{hour:02}:{minute:02}:{second:02}.{fraction:03}Z");
    if millis < MILLIS_PER_DAY {
        return time;
    }
    let (year, month, day) = date_of(millis.div_euclid(MILLIS_PER_DAY));
    let date = format!("{year:04}-{month:02}-{day:02}");
    if of_day == 0 {
        date
    } else {
        format!("{date}T{time}")
    }
}

/// What is left of a text to be read.
struct Fields<'a>(&'a str);

impl Fields<'_> {
    /// Days since 1970-01-01.
    fn date(&mut self) -> Option<i64> {
        let year = self.number()?;
        self.literal('-')?;
        let month = self.number()?;
        self.literal('-')?;
        let day = self.number()?;
        Some(days_of(year, month, day))
    }

    /// Milliseconds since midnight, of more than a day too.
    fn time(&mut self) -> Option<i64> {
        let hour = self.number()?;
        self.literal(':')?;
        let minute = self.number()?;
        self.literal(':')?;
        let second = self.number()?;
        self.literal('.')?;
        let millis = self.number()?;
        self.literal('Z')?;
        Some(((hour * 60 + minute) * 60 + second) * 1000 + millis)
    }

    fn literal(&mut self, literal: char) -> Option<()> {
        self.0 = self.0.strip_prefix(literal)?;
        Some(())
    }

    /// As many digits as there are, with blanks before them and a sign; cut to 32 bits as Java does.
    fn number(&mut self) -> Option<i64> {
        let text = self.0.trim_start_matches([' ', '\t']);
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut value: i64 = 0;
        let mut rest = unsigned.chars();
        let mut count = 0;
        loop {
            self.0 = rest.as_str();
            let Some(digit) = rest.next().and_then(crate::data::digit_value) else {
                break;
            };
            count += 1;
            value = value.saturating_mul(10).saturating_add(digit.into());
        }
        if count == 0 {
            return None;
        }
        let value = if is_negative { -value } else { value };
        // Beyond 64 bits Java goes through a double, which stops at the ends of 32 bits.
        let is_wide = value == i64::MAX || value == -i64::MAX;
        let ends = (i32::MIN.into(), i32::MAX.into());
        Some(if is_wide {
            value.clamp(ends.0, ends.1)
        } else {
            (value as i32).into()
        })
    }
}

/// Days from 1970-01-01 to a date whose month and day may be out of range. Before 1582-10-15 by the Julian
/// calendar, as in Java.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let first = |days_of_first: fn(i64, i64) -> i64| {
        let months = year * 12 + month - 1;
        days_of_first(months.div_euclid(12), months.rem_euclid(12) + 1) + day - 1
    };
    let (julian, gregorian) = (first(julian_days), first(gregorian_days));
    if year < CUTOVER_YEAR || gregorian < CUTOVER_DAYS {
        julian
    } else {
        gregorian
    }
}

/// Days from 1970-01-01 to the first of a month. Years begin in March here, so that the leap day is
/// their last.
fn gregorian_days(year: i64, month: i64) -> i64 {
    let (year, days) = since_march(year, month);
    days + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) - 719_468
}

/// As [`gregorian_days`], with a leap year every four years.
fn julian_days(year: i64, month: i64) -> i64 {
    let (year, days) = since_march(year, month);
    days + year.div_euclid(4) - 719_470
}

/// The year that begins in March, and the days from its year 0 to the first of the month, leap days aside.
const fn since_march(year: i64, month: i64) -> (i64, i64) {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    (year, year * 365 + (153 * month + 2) / 5)
}

/// Year, month and day of a day from 1970-01-01 on.
const fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (year + era * 400 + next, month, day)
}

const DATE_UNITS: usize = "2024-02-29".len();
const TIME_UNITS: usize = "12:34:56.789Z".len();
const TIMESTAMP_UNITS: usize = "2024-02-29T12:34:56.789Z".len();

/// The year in which the Gregorian calendar begins, and its first day.
const CUTOVER_YEAR: i64 = 1582;
const CUTOVER_DAYS: i64 = -141_427;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_are_counted_by_the_calendar_of_their_time() {
        assert_eq!(days_of(1970, 1, 1), 0);
        assert_eq!(days_of(2024, 2, 29), 19_782);
        assert_eq!(days_of(1582, 10, 15), CUTOVER_DAYS);
        assert_eq!(days_of(1582, 10, 4), CUTOVER_DAYS - 1);
        assert_eq!(days_of(1, 1, 1), -719_164);
        assert_eq!(days_of(2024, 13, 45), days_of(2025, 2, 14));
        assert_eq!(days_of(2024, 0, 0), days_of(2023, 11, 30));
        assert_eq!(text_of(-1), "23:59:59.999Z");
    }

    #[test]
    fn other_lengths_and_other_signs_are_no_dates() {
        for text in [
            "2024-2-29",
            "2024/02/29",
            "12:34:56Z",
            "2024-02-29 12:34:56.789Z",
            "१२३",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("1-1-1 rest"), parse("0001-01-01"));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(millis in MILLIS_PER_DAY..253_402_300_800_000_i64) {
            let read = parse(&text_of(millis)).unwrap();
            prop_assert!(matches!(read.value, Value::Date(read) | Value::Timestamp(read) if read == millis));
        }

        #[test]
        fn any_fields_are_counted(text in "[-0-9]{1,8}-[-0-9]{1,8}-[-0-9]{1,8}(T[0-9:.Z]{13})?") {
            drop(parse(&text));
        }
    }
}
