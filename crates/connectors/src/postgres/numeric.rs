//! The binary form of `numeric`: digits of base 10,000.

use bytes::{BufMut, BytesMut};
use sharegroup_sink::data::Decimal;

/// Appends a number, without its length. `None` = beyond what a numeric holds.
pub(super) fn put_decimal(decimal: &Decimal, out: &mut BytesMut) -> Option<()> {
    // Most numbers fit into 128 bits and cost no allocation.
    let mut buffer = [0; 40];
    if let Some(number) = small(decimal.unscaled()) {
        let digits = decimal_digits(number.unsigned_abs(), &mut buffer);
        return put(number < 0, digits, decimal.scale(), out);
    }
    let text = decimal.unscaled_digits();
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.as_str()),
    };
    put(is_negative, digits.as_bytes(), decimal.scale(), out)
}

/// Appends a whole number, without its length.
pub(super) fn put_integer(number: i64, out: &mut BytesMut) -> Option<()> {
    let mut buffer = [0; 40];
    let digits = decimal_digits(u128::from(number.unsigned_abs()), &mut buffer);
    put(number < 0, digits, 0, out)
}

/// Appends what isn't a number.
pub(super) fn put_nan(out: &mut BytesMut) -> Option<()> {
    header([0, 0, NAN, 0], out);
    Some(())
}

/// The integer of up to 16 bytes in two's complement.
fn small(unscaled: &[u8]) -> Option<i128> {
    let fill = if unscaled.first()? & 0x80 == 0 {
        0
    } else {
        0xff
    };
    let mut bytes = [fill; 16];
    let start = bytes.len().checked_sub(unscaled.len())?;
    bytes.get_mut(start..)?.copy_from_slice(unscaled);
    Some(i128::from_be_bytes(bytes))
}

fn decimal_digits(mut number: u128, buffer: &mut [u8; 40]) -> &[u8] {
    let mut start = buffer.len();
    for (place, digit) in buffer.iter_mut().enumerate().rev() {
        // INVARIANT: the rest is below 10.
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        start = place;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    buffer.get(start..).unwrap_or_default()
}

/// Groups of four digits, counted from the point; those that are zero at both ends are left out.
fn put(is_negative: bool, digits: &[u8], scale: i32, out: &mut BytesMut) -> Option<()> {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let digits = digits.get(zeros..).unwrap_or_default();
    let shown_scale = u16::try_from(scale.max(0))
        .ok()
        .filter(|scale| *scale <= SCALE_MAX)?;
    if digits.is_empty() {
        header([0, 0, POSITIVE, shown_scale], out);
        return Some(());
    }
    // Digits before the point, negative = zeros behind it.
    let whole = i32::try_from(digits.len()).ok()?.checked_sub(scale)?;
    let weight = (whole - 1).div_euclid(4);
    // Zeros before the first digit that fill its group.
    let lead = usize::try_from((weight + 1) * 4 - whole).ok()?;
    let mut groups = (lead + digits.len()).div_ceil(4);
    let group = |number: usize| {
        let places = number * 4..number * 4 + 4;
        places.fold(0_u16, |value, place| {
            let digit = place.checked_sub(lead).and_then(|place| digits.get(place));
            value * 10 + digit.map_or(0, |digit| u16::from(digit - b'0'))
        })
    };
    while groups > 0 && group(groups - 1) == 0 {
        groups -= 1;
    }
    let sign = if is_negative { NEGATIVE } else { POSITIVE };
    let weight = i16::try_from(weight).ok()?;
    header(
        [
            u16::try_from(groups).ok()?,
            weight.cast_unsigned(),
            sign,
            shown_scale,
        ],
        out,
    );
    (0..groups).for_each(|number| out.put_u16(group(number)));
    Some(())
}

fn header(fields: [u16; 4], out: &mut BytesMut) {
    fields.into_iter().for_each(|field| out.put_u16(field));
}

const POSITIVE: u16 = 0;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const SCALE_MAX: u16 = 16_383;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn words(text: &str) -> Vec<u16> {
        let mut out = BytesMut::new();
        put_decimal(&Decimal::parse(text).unwrap(), &mut out).unwrap();
        let words = out.chunks_exact(2);
        words
            .map(|word| u16::from_be_bytes([word[0], word[1]]))
            .collect()
    }

    #[test]
    fn digits_stand_in_groups_of_four_around_the_point() {
        for (text, expected) in [
            ("0", vec![0, 0, 0, 0]),
            ("0.00", vec![0, 0, 0, 2]),
            ("1", vec![1, 0, 0, 0, 1]),
            ("-10000", vec![1, 1, 0x4000, 0, 1]),
            ("12345.678", vec![3, 1, 0, 3, 1, 2345, 6780]),
            ("0.0001", vec![1, 0xffff, 0, 4, 1]),
            ("0.00001", vec![1, 0xfffe, 0, 5, 1000]),
            ("1E+5", vec![1, 1, 0, 0, 10]),
            (
                "170141183460469231731687303715884105728",
                vec![
                    10, 9, 0, 0, 170, 1411, 8346, 469, 2317, 3168, 7303, 7158, 8410, 5728,
                ],
            ),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
        let huge = Decimal::parse("1E-20000").unwrap();
        assert_eq!(put_decimal(&huge, &mut BytesMut::new()), None);
    }

    proptest::proptest! {
        #[test]
        fn a_number_is_the_sum_of_its_groups(unscaled: i64, scale in 0..30_i32) {
            let decimal = Decimal::from_unscaled(Bytes::copy_from_slice(&unscaled.to_be_bytes()), scale).unwrap();
            let words = words(&decimal.to_string());
            let (groups, weight) = (i32::from(words[0]), i32::from(words[1].cast_signed()));
            proptest::prop_assert_eq!(groups, i32::try_from(words.len()).unwrap() - 4);
            // All groups behind the header, as one whole number; its last digit stands for 10 to the power of this.
            let exponent = 4 * (weight + 1 - groups);
            let digits: String = words[4..].iter().map(|group| format!("{group:04}")).collect();
            let digits = format!("{}{digits}e{exponent}", if words[2] == NEGATIVE { "-" } else { "" });
            let back: f64 = digits.replace("-e", "0e").parse().unwrap_or(0.0);
            let given: f64 = decimal.to_string().parse().unwrap();
            proptest::prop_assert_eq!(back, given);
        }

        #[test]
        fn no_bytes_break_it(unscaled in proptest::collection::vec(proptest::num::u8::ANY, 1..80), scale: i32) {
            let decimal = Decimal::from_unscaled(Bytes::from(unscaled), scale).unwrap();
            put_decimal(&decimal, &mut BytesMut::new());
        }
    }
}
