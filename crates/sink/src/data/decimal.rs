//! Decimal numbers of any size, as Java's `BigDecimal` has them: an unscaled integer and a scale.

use std::fmt;

use bytes::Bytes;

/// A decimal number: an unscaled integer times 10 to the power of minus its scale. A clone shares the
/// digits.
///
/// Two numbers are equal if they have the same digits *and* the same scale: 1.0 isn't 1.00, as in
/// Java's `BigDecimal.equals`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    /// Two's complement, big endian, as short as it can be.
    unscaled: Bytes,
    scale: i32,
}

impl Decimal {
    /// A number of an unscaled value in two's complement, big endian, and a scale: the digits after
    /// the point, negative = zeros before it. `None` = no bytes. Nothing is copied.
    #[must_use]
    pub fn from_unscaled(mut unscaled: Bytes, scale: i32) -> Option<Self> {
        let sign = sign_byte(*unscaled.first()?);
        let surplus = unscaled
            .windows(2)
            .take_while(
                |pair| matches!(pair, [first, next] if *first == sign && sign_byte(*next) == sign),
            )
            .count();
        let unscaled = unscaled.split_off(surplus);
        Some(Self { unscaled, scale })
    }

    /// A number of text: digits, with a sign, a point and an exponent where wanted. `None` = not a
    /// number, more than 1,000 digits, or a scale beyond 32 bits.
    ///
    /// ```
    /// use sharegroup_sink::data::Decimal;
    ///
    /// let price = Decimal::parse("-12.340").unwrap();
    /// assert_eq!((price.to_string(), price.scale()), ("-12.340".to_owned(), 3));
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Digits::parse(text)?.decimal()
    }

    /// The unscaled value in two's complement, big endian, as short as it can be.
    #[must_use]
    pub const fn unscaled(&self) -> &Bytes {
        &self.unscaled
    }

    /// Digits after the point; negative = zeros before it.
    #[must_use]
    pub const fn scale(&self) -> i32 {
        self.scale
    }

    /// The unscaled value in decimal digits, with `-` where it is negative. Takes time by the square
    /// of its length.
    #[must_use]
    pub fn unscaled_digits(&self) -> String {
        let (is_negative, digits) = digits_of(&self.unscaled);
        format!("{}{digits}", if is_negative { "-" } else { "" })
    }
}

/// As `BigDecimal.toString` writes it: plain, or with an exponent where the scale is negative or more
/// than five zeros would follow the point.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (is_negative, digits) = digits_of(&self.unscaled);
        let scale = i64::from(self.scale);
        // INVARIANT: a string's length fits.
        let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
        let exponent = count - 1 - scale;
        if is_negative {
            f.write_str("-")?;
        }
        if scale == 0 {
            return f.write_str(&digits);
        }
        if scale > 0 && exponent >= -6 {
            let zeros = usize::try_from(scale - count + 1).unwrap_or(0);
            let digits = format!("{}{digits}", "0".repeat(zeros));
            let point = digits.len() - usize::try_from(scale).unwrap_or(0);
            let (whole, fraction) = digits.split_at(point);
            return write!(f, "{whole}.{fraction}");
        }
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{first}{point}{rest}E{exponent:+}")
    }
}

/// A number as text says it, before it is decided what it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digits {
    pub(crate) is_negative: bool,
    /// ASCII digits without leading zeros; empty = zero.
    digits: String,
    scale: i32,
}

impl Digits {
    /// By the grammar of Java's `BigDecimal`, digits of other scripts included.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (significand, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((significand, exponent)) => (significand, parse_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = significand.split_once('.').unwrap_or((significand, ""));
        let mut digits = String::with_capacity(significand.len());
        let mut count = 0;
        for c in whole.chars().chain(fraction.chars()) {
            let digit = digit_value(c)?;
            count += 1;
            if digit != 0 || !digits.is_empty() {
                digits.push(char::from(b'0' + digit));
            }
        }
        if count == 0 || count > DIGITS_MAX {
            return None;
        }
        let fraction_digits = i64::try_from(fraction.chars().count()).ok()?;
        let scale = i32::try_from(fraction_digits - exponent).ok()?;
        Some(Self {
            is_negative,
            digits,
            scale,
        })
    }

    pub(crate) const fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Whether digits stand after the point, zeros included, or an exponent does their work.
    pub(crate) const fn has_scale(&self) -> bool {
        self.scale != 0
    }

    /// The digits before and after the point; the first without the zeros of a negative scale.
    fn split(&self) -> (&str, &str) {
        let fraction = usize::try_from(self.scale).unwrap_or(0);
        self.digits
            .split_at(self.digits.len().saturating_sub(fraction))
    }

    /// The number as an integer, if it is one of 64 bits, whatever its scale.
    pub(crate) fn exact_integer(&self) -> Option<i64> {
        let (whole, fraction) = self.split();
        if fraction.bytes().any(|digit| digit != b'0') {
            return None;
        }
        let mut value: i128 = 0;
        for digit in whole.bytes() {
            value = value.checked_mul(10)? + i128::from(digit - b'0');
        }
        if value != 0 {
            let zeros = u32::try_from(-i64::from(self.scale.min(0))).ok()?;
            value = value.checked_mul(10_i128.checked_pow(zeros)?)?;
        }
        i64::try_from(if self.is_negative { -value } else { value }).ok()
    }

    /// The low 64 bits of its whole part in two's complement: what Java's `longValue` gives.
    pub(crate) fn wrapped_integer(&self) -> i64 {
        let (whole, _) = self.split();
        let zeros = usize::try_from(-i64::from(self.scale.min(0))).unwrap_or(usize::MAX);
        // 2^64 divides 10^64.
        let zeros = std::iter::repeat_n(b'0', zeros.min(64));
        let digits = whole.bytes().chain(zeros);
        let magnitude = digits.fold(0_u64, |value, digit| {
            value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
        });
        let wrapped = i64::from_ne_bytes(magnitude.to_ne_bytes());
        if self.is_negative {
            wrapped.wrapping_neg()
        } else {
            wrapped
        }
    }

    /// The nearest float; zero has no sign. Beyond the largest = infinity.
    pub(crate) fn to_f32(&self) -> f32 {
        self.float_text().parse().unwrap_or(f32::NAN)
    }

    /// The nearest double; zero has no sign. Beyond the largest = infinity.
    pub(crate) fn to_f64(&self) -> f64 {
        self.float_text().parse().unwrap_or(f64::NAN)
    }

    fn float_text(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        let sign = if self.is_negative { "-" } else { "" };
        format!("{sign}{}e{}", self.digits, -i64::from(self.scale))
    }

    pub(crate) fn decimal(&self) -> Option<Decimal> {
        Decimal::from_unscaled(unscaled_of(self.is_negative, &self.digits), self.scale)
    }
}

/// Exponents have at most ten digits in Java, beside leading zeros.
fn parse_exponent(text: &str) -> Option<i64> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if unsigned.is_empty() {
        return None;
    }
    let mut exponent: i64 = 0;
    for c in unsigned.chars() {
        exponent = exponent * 10 + i64::from(digit_value(c)?);
        if exponent >= 10_000_000_000 {
            return None;
        }
    }
    Some(if is_negative { -exponent } else { exponent })
}

/// The value of a decimal digit of any script in the basic plane, as Java's `Character.digit` has it.
pub(crate) fn digit_value(c: char) -> Option<u8> {
    if c.is_ascii() {
        return c.is_ascii_digit().then(|| c as u8 - b'0');
    }
    let code = u32::from(c);
    let zero = DIGIT_ZEROS.iter().rev().find(|zero| **zero <= code)?;
    u8::try_from(code - zero).ok().filter(|digit| *digit < 10)
}

const fn sign_byte(byte: u8) -> u8 {
    if byte & 0x80 == 0 { 0 } else { 0xff }
}

/// Two's complement, big endian, of an integer in decimal digits.
fn unscaled_of(is_negative: bool, digits: &str) -> Bytes {
    // Limbs of 32 bits, the lowest first.
    let mut limbs: Vec<u32> = Vec::with_capacity(digits.len() / 9 + 2);
    for digit in digits.bytes() {
        let mut carry = u64::from(digit - b'0');
        for limb in &mut limbs {
            carry += u64::from(*limb) * 10;
            *limb = low(carry);
            carry >>= 32;
        }
        if carry > 0 {
            limbs.push(low(carry));
        }
    }
    limbs.push(0);
    if is_negative {
        negate(&mut limbs);
    }
    limbs
        .iter()
        .rev()
        .flat_map(|limb| limb.to_be_bytes())
        .collect()
}

/// The sign and the decimal digits of an integer in two's complement, big endian.
fn digits_of(unscaled: &[u8]) -> (bool, String) {
    let sign = unscaled.first().map_or(0, |byte| sign_byte(*byte));
    let mut limbs: Vec<u32> = unscaled
        .rchunks(4)
        .map(|chunk| {
            let mut limb = [sign; 4];
            let start = limb.len() - chunk.len();
            limb[start..].copy_from_slice(chunk);
            u32::from_be_bytes(limb)
        })
        .collect();
    let is_negative = sign != 0;
    if is_negative {
        negate(&mut limbs);
    }
    let mut groups = Vec::new();
    while limbs.last() == Some(&0) {
        limbs.pop();
    }
    while !limbs.is_empty() {
        let mut rest = 0_u64;
        for limb in limbs.iter_mut().rev() {
            let value = rest << 32 | u64::from(*limb);
            *limb = low(value / GROUP);
            rest = value % GROUP;
        }
        groups.push(rest);
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
    }
    let highest = groups.pop().unwrap_or(0).to_string();
    let lower = groups.iter().rev().map(|group| format!("{group:09}"));
    (is_negative, std::iter::once(highest).chain(lower).collect())
}

fn negate(limbs: &mut [u32]) {
    let mut carry = true;
    for limb in limbs {
        (*limb, carry) = (!*limb).overflowing_add(carry.into());
    }
}

/// The low 32 bits.
const fn low(value: u64) -> u32 {
    value as u32
}

/// Decimal digits are taken from an integer in groups of nine.
const GROUP: u64 = 1_000_000_000;

/// Most digits of a number in text, as the JSON reader of the Java converter allows.
const DIGITS_MAX: usize = 1000;

/// The digit zero of each script in the basic plane (Unicode category Nd); one to nine follow it.
const DIGIT_ZEROS: [u32; 37] = [
    0x0030, 0x0660, 0x06f0, 0x07c0, 0x0966, 0x09e6, 0x0a66, 0x0ae6, 0x0b66, 0x0be6, 0x0c66, 0x0ce6,
    0x0d66, 0x0de6, 0x0e50, 0x0ed0, 0x0f20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80,
    0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0,
    0xff10,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_written_as_java_writes_them() {
        for (text, written) in [
            ("0", "0"),
            ("-0", "0"),
            ("0.00", "0.00"),
            ("12.34", "12.34"),
            ("-0.01", "-0.01"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1E-7"),
            ("1e309", "1E+309"),
            ("15e308", "1.5E+309"),
            ("+5.", "5"),
            (".5", "0.5"),
            ("००१२.५", "12.5"),
            (
                "-123456789012345678901234567890",
                "-123456789012345678901234567890",
            ),
        ] {
            assert_eq!(Decimal::parse(text).unwrap().to_string(), written, "{text}");
        }
        for text in [
            "",
            "-",
            ".",
            "e5",
            "1e",
            "1e+",
            "--1",
            "1_0",
            "1e2147483649",
            "1e99999999999",
        ] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
        assert_eq!(Decimal::parse(&"1".repeat(DIGITS_MAX + 1)), None);
    }

    #[test]
    fn unscaled_bytes_are_as_short_as_they_can_be() {
        let decimal = |bytes: &'static [u8]| Decimal::from_unscaled(Bytes::from_static(bytes), 2);
        assert_eq!(decimal(&[]), None);
        assert_eq!(decimal(&[0xff]).unwrap().to_string(), "-0.01");
        assert_eq!(decimal(&[0, 0, 0x9c]), decimal(&[0, 0x9c]));
        assert_eq!(decimal(&[0, 0x9c]).unwrap().to_string(), "1.56");
        assert_eq!(decimal(&[0xff, 0xff, 0x80]), decimal(&[0x80]));
        assert_eq!(decimal(&[0x80]).unwrap().unscaled_digits(), "-128");
        assert_eq!(&decimal(&[0, 0, 0]).unwrap().unscaled()[..], [0]);
    }

    #[test]
    fn integers_are_exact_or_wrap() {
        let digits = |text| Digits::parse(text).unwrap();
        assert_eq!(digits("1.50e1").exact_integer(), Some(15));
        assert_eq!(digits("1.5").exact_integer(), None);
        assert_eq!(digits("0e-999999999").exact_integer(), Some(0));
        assert_eq!(digits("0e999999999").exact_integer(), Some(0));
        assert_eq!(digits("1e999999999").exact_integer(), None);
        assert_eq!(digits("9223372036854775808").exact_integer(), None);
        assert_eq!(digits("9223372036854775808").wrapped_integer(), i64::MIN);
        assert_eq!(digits("-9223372036854775809").wrapped_integer(), i64::MAX);
        assert_eq!(digits("1e400").wrapped_integer(), 0);
        assert_eq!(digits("-1.9").wrapped_integer(), -1);
        assert_eq!(digits("1e400").to_f64(), f64::INFINITY);
        assert!(digits("-0.0").to_f64().is_sign_positive());
    }

    proptest! {
        #[test]
        fn digits_and_bytes_round_trip(value: i128, scale in -50..50_i32) {
            let bytes = Bytes::copy_from_slice(&value.to_be_bytes());
            let decimal = Decimal::from_unscaled(bytes, scale).unwrap();
            prop_assert_eq!(decimal.unscaled_digits(), value.to_string());
            prop_assert_eq!(Decimal::parse(&decimal.to_string()), Some(decimal.clone()));
            prop_assert_eq!(Decimal::parse(&format!("{value}e{}", -scale)), Some(decimal));
        }
    }
}
