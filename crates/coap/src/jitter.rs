//! Numbers that need only look random: back-off and first message identifiers. Seeded by the caller.

/// SplitMix64: not for tokens, keys or anything that must not be guessed.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn next_u16(&mut self) -> u16 {
        let [high, low, ..] = self.next().to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// Between `low` and `high` milliseconds, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high.saturating_sub(low) + 1)
    }
}
