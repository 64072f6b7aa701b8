//! Seeded randomness whose sequence never changes, so that a seed names the same history for ever.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_change::Random;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub struct Dice {
    state: AtomicU64,
}

impl Dice {
    /// Dice that always fall the same way.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed ^ 0x5851_F42D_4C95_7F2D),
        }
    }

    /// 64 random bits.
    pub fn roll(&self) -> u64 {
        let gamma = 0x9E37_79B9_7F4A_7C15;
        let mut z = self
            .state
            .fetch_add(gamma, Ordering::Relaxed)
            .wrapping_add(gamma);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder is below a usize"
    )]
    pub fn below(&self, end: usize) -> usize {
        if end == 0 {
            0
        } else {
            (self.roll() % end as u64) as usize
        }
    }

    /// A number of `start..=end`.
    pub fn between(&self, start: usize, end: usize) -> usize {
        start + self.below(end.saturating_sub(start) + 1)
    }

    /// True in that many of a hundred throws.
    pub fn percent(&self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of some choices; the first when there is none other.
    pub fn pick<'a, T>(&self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Some of the choices, in their order.
    pub fn some_of<T: Clone>(&self, choices: &[T], chance: usize) -> Vec<T> {
        choices
            .iter()
            .filter(|_| self.percent(chance))
            .cloned()
            .collect()
    }

    /// Puts items into random order.
    pub fn shuffle<T>(&self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

impl Random for Dice {
    fn next_u64(&self) -> u64 {
        self.roll()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let dice = Dice::new(1);
        let rolls = [dice.roll(), dice.roll()];
        let again = Dice::new(1);
        assert_eq!(rolls, [again.roll(), again.roll()]);
    }
}
