//! Orders that are the same for the same seed, and the count of what became of them.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

/// A list of orders. Each is a function of the seed and its number, so none needs to be kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Orders {
    pub(super) seed: u64,
    pub(super) count: u64,
}

const CUSTOMERS: u64 = 5_000;
const ITEMS: [(&str, u64); 8] = [
    ("espresso beans", 1_450),
    ("filter paper", 390),
    ("hand grinder", 8_900),
    ("kettle", 6_450),
    ("milk jug", 2_200),
    ("moka pot", 3_790),
    ("scale", 4_100),
    ("tamper", 2_950),
];
const COUNTRIES: [&str; 6] = ["AT", "DE", "FR", "IT", "NL", "SE"];
/// 2026-01-01T00:00:00Z.
const FIRST_PLACED_AT_MS: u64 = 1_767_225_600_000;

const VALUE_STARTS_WITH: &str = "{\"order_id\":";

impl Orders {
    /// Key and value of an order: its customer, and a JSON object on one line.
    pub(super) fn order(&self, number: u64) -> (String, String) {
        let mut random = Random(self.seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        let customer = format!("c-{:04}", random.below(CUSTOMERS));
        let (item, price_cents) = pick(&ITEMS, &mut random);
        let quantity = 1 + random.below(5);
        let country = pick(&COUNTRIES, &mut random);
        let placed_at_ms = FIRST_PLACED_AT_MS + number * 137 + random.below(137);
        let value = format!(
            "{VALUE_STARTS_WITH}{number},\"customer\":\"{customer}\",\"item\":\"{item}\",\
             \"quantity\":{quantity},\"total_cents\":{},\"currency\":\"EUR\",\"country\":\"{country}\",\
             \"placed_at_ms\":{placed_at_ms}}}",
            price_cents * quantity
        );
        (customer, value)
    }

    /// The number of the order that a line is; `None` = it is none of these.
    fn number_of(&self, line: &str) -> Option<u64> {
        let rest = line.strip_prefix(VALUE_STARTS_WITH)?;
        let number = rest.split(',').next()?.parse().ok()?;
        (number < self.count && self.order(number).1 == line).then_some(number)
    }

    /// Counts the lines of files.
    pub(super) fn tally<'a>(&self, files: impl IntoIterator<Item = &'a Path>) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let mut seen = vec![false; usize::try_from(self.count).unwrap_or(usize::MAX)];
        for file in files {
            let mut reader = BufReader::with_capacity(256 * 1024, File::open(file)?);
            let mut line = String::new();
            tally.files += 1;
            while reader.read_line(&mut line)? > 0 {
                tally.lines += 1;
                tally.bytes += line.len() as u64;
                let number = self.number_of(line.trim_end_matches('\n'));
                let place = number
                    .and_then(|number| usize::try_from(number).ok())
                    .and_then(|number| seen.get_mut(number));
                match place {
                    Some(place) if *place => tally.duplicates += 1,
                    Some(place) => {
                        *place = true;
                        tally.distinct += 1;
                    }
                    None => tally.foreign += 1,
                }
                line.clear();
            }
        }
        Ok(tally)
    }
}

/// What is in the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) lines: u64,
    /// Orders that are there, byte by byte as they were produced.
    pub(super) distinct: u64,
    /// Orders that are there once more.
    pub(super) duplicates: u64,
    /// Lines that are no order.
    pub(super) foreign: u64,
}

/// SplitMix64: enough for data that only has to look alive.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn pick<T: Copy, const N: usize>(choices: &[T; N], random: &mut Random) -> T {
    // INVARIANT: below N.
    #[expect(clippy::cast_possible_truncation, reason = "below a length")]
    let index = random.below(N as u64) as usize;
    choices[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: Orders = Orders {
        seed: 42,
        count: 1_000,
    };

    #[test]
    fn the_same_seed_gives_the_same_orders() {
        let (key, value) = ORDERS.order(7);
        assert_eq!(key, "c-0036");
        assert_eq!(
            value,
            r#"{"order_id":7,"customer":"c-0036","item":"moka pot","quantity":1,"total_cents":3790,"currency":"EUR","country":"NL","placed_at_ms":1767225601015}"#
        );
        let other = Orders { seed: 43, ..ORDERS };
        let differing = (0..100).filter(|number| ORDERS.order(*number) != other.order(*number));
        assert!(differing.count() > 95);
    }

    #[test]
    fn an_order_is_json_with_its_number() {
        for number in [0, 1, 999] {
            let (key, value) = ORDERS.order(number);
            let json: serde_json::Value = serde_json::from_str(&value).unwrap();
            assert_eq!(json["order_id"], number);
            assert_eq!(json["customer"], key);
            assert!(json["total_cents"].as_u64().unwrap() > 0);
        }
    }

    #[test]
    fn the_tally_finds_what_is_missing_double_or_foreign() {
        let file = std::env::temp_dir().join(format!("sharegroup-tally-{}", std::process::id()));
        let mut text = String::new();
        for number in (0..990).chain([5, 6]) {
            text.push_str(&ORDERS.order(number).1);
            text.push('\n');
        }
        text.push_str("{\"order_id\":995,\"customer\":\"changed\"}\n");
        std::fs::write(&file, &text).unwrap();
        let tally = ORDERS.tally([file.as_path()]);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(
            tally.unwrap(),
            Tally {
                files: 1,
                bytes: text.len() as u64,
                lines: 993,
                distinct: 990,
                duplicates: 2,
                foreign: 1,
            }
        );
    }
}
