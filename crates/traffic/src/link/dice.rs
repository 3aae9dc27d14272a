//! Random numbers from a seed: xorshift64* (Vigna 2016).

/// Draws of one direction or station.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        // xorshift never leaves zero; the multiplication keeps small seeds apart.
        let mut dice = Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        // The first values of similar seeds are similar.
        for _ in 0..8 {
            dice.draw();
        }
        dice
    }

    /// From 0 up to 1.
    pub(super) fn draw(&mut self) -> f64 {
        f64::from(self.bits()) / (f64::from(u32::MAX) + 1.0)
    }

    /// Whether what happens to a share happens now. Nothing is drawn for what never happens, so that other draws of the
    /// same seed stay what they are.
    pub(super) fn is(&mut self, share: f64) -> bool {
        share > 0.0 && self.draw() < share
    }

    /// A whole number from `least` up to `end`; nothing if there is none.
    pub(super) fn below(&mut self, end: usize, least: usize) -> Option<usize> {
        let span = end.checked_sub(least).filter(|span| *span > 0)?;
        Some(least + usize::try_from(self.bits()).unwrap_or(0) % span)
    }

    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        u32::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32).unwrap_or(0)
    }
}
