//! Figures of several rounds.

use std::collections::BTreeMap;

/// The figures of one run, by name.
pub(super) type Figures = BTreeMap<&'static str, f64>;

/// Median, least and greatest of some rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of one figure over all rounds; `None` where no round has it.
    pub(super) fn of(rounds: &[Figures], name: &str) -> Option<Self> {
        let mut values: Vec<f64> = rounds
            .iter()
            .filter_map(|round| round.get(name).copied())
            .collect();
        values.sort_by(f64::total_cmp);
        let (middle, upper) = (values.len().checked_sub(1)? / 2, values.len() / 2);
        Some(Self {
            median: f64::midpoint(*values.get(middle)?, *values.get(upper)?),
            min: *values.first()?,
            max: *values.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_is_between_the_middle_ones() {
        let rounds: Vec<Figures> = [4.0, 1.0, 3.0, 2.0]
            .map(|value| Figures::from([("a", value)]))
            .into();
        let spread = Spread::of(&rounds, "a").unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert!(Spread::of(&rounds, "b").is_none());
    }
}
