//! The bytes of the fuzzer as choices.

/// What is left of them; behind their end there are only zeros.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte, as long as there is one.
    pub(super) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.next().unwrap_or_default()
    }

    pub(super) fn number(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A number below 256, which is small more often than not.
    pub(super) fn index(&mut self, below: usize) -> usize {
        usize::from(self.byte()) % below.max(1)
    }

    /// Up to 255 bytes behind their number.
    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }
}
