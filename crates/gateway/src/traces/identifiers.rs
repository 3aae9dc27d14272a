//! Identifiers of traces and spans: random, never all zero (W3C Trace Context §3.2.2).

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
};

/// A trace, of which many programs have spans.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// A span within a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// The half that is random whoever made it.
    pub(super) const fn random_part(self) -> u64 {
        let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

fn hexadecimal(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hexadecimal(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hexadecimal(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Makes identifiers. They are no secrets: a random seed and SplitMix64, which gives no number twice, cost no system
/// call each.
#[derive(Debug)]
pub(super) struct Identifiers(u64);

impl Identifiers {
    pub(super) fn new() -> Self {
        Self::seeded(RandomState::new().hash_one(0))
    }

    pub(super) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn trace(&mut self) -> TraceId {
        let (high, low) = (self.next(), self.next());
        // Only one of two successive numbers may be zero.
        TraceId((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }

    pub(super) const fn span(&mut self) -> SpanId {
        loop {
            let number = self.next();
            if number != 0 {
                return SpanId(number.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn none_comes_twice_and_none_is_zero() {
        let mut identifiers = Identifiers::new();
        let spans: HashSet<_> = (0..10_000).map(|_| identifiers.span()).collect();
        let traces: HashSet<_> = (0..10_000).map(|_| identifiers.trace()).collect();
        assert_eq!((spans.len(), traces.len()), (10_000, 10_000));
        assert!(!spans.contains(&SpanId([0; 8])) && !traces.contains(&TraceId([0; 16])));
        // The number behind this seed is zero.
        let mut identifiers = Identifiers::seeded(0_u64.wrapping_sub(0x9e37_79b9_7f4a_7c15));
        assert_ne!(identifiers.span(), SpanId([0; 8]));
    }
}
