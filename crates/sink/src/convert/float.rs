//! Floats as Java writes them since version 19: the fewest digits that give the same float, with an
//! exponent from 10^7 on and below 10^-3.

/// As `Double.toString`.
pub(super) fn double_text(value: f64) -> String {
    text(value, format!("{value:e}"), format!("{value:.1e}"))
}

/// As `Float.toString`.
pub(super) fn float_text(value: f32) -> String {
    text(value.into(), format!("{value:e}"), format!("{value:.1e}"))
}

/// `shortest` is the number with the fewest digits, as `1.25e-7`. Where that is one digit, Java takes
/// the nearest number of two.
fn text(value: f64, shortest: String, two_digits: String) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = if shortest.contains('.') {
        shortest
    } else {
        two_digits
    };
    let (significand, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, significand) = match significand.strip_prefix('-') {
        Some(significand) => ("-", significand),
        None => ("", significand),
    };
    let (first, rest) = significand.split_once('.').unwrap_or((significand, ""));
    let rest = if rest == "0" { "" } else { rest };
    if value != 0.0 && !(-3..7).contains(&exponent) {
        let rest = if rest.is_empty() { "0" } else { rest };
        return format!("{sign}{first}.{rest}E{exponent}");
    }
    let digits = format!("{first}{rest}");
    let Ok(whole) = usize::try_from(exponent) else {
        let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
        return format!("{sign}0.{}{digits}", "0".repeat(zeros));
    };
    let digits = format!("{digits:0<width$}", width = whole + 2);
    let (whole, fraction) = digits.split_at(whole + 1);
    format!("{sign}{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_java_writes_them() {
        for (value, written) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-12.5, "-12.5"),
            (0.001, "0.001"),
            (0.00099, "9.9E-4"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (1.5e39, "1.5E39"),
            (123_456.789, "123456.789"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double_text(value), written);
        }
        assert_eq!(float_text(0.3), "0.3");
        assert_eq!(float_text(1.4e-45), "1.4E-45");
        assert_eq!(float_text(16_777_218.0), "1.6777218E7");
    }
}
