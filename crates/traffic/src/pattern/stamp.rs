//! How a message is known again: its publisher and number stand in the first bytes of the payload, as text, so that no
//! door needs to encode it.

/// Bytes of a stamp: publisher and number in six bits each.
pub(crate) const STAMP_BYTES: usize = 7;
/// Publishers that can be told apart.
pub(crate) const PUBLISHERS_MAX: u32 = 1 << 20;
/// Up to so many publishers have 2^30 numbers each; more of them have 2^22.
const FEW: u32 = 1 << 12;
const NUMBER_BITS: u32 = 30;
const NUMBER_BITS_OF_MANY: u32 = 22;

/// How the 42 bits of a stamp are divided, which depends on how many publishers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    number_bits: u32,
}

impl Default for Stamp {
    fn default() -> Self {
        Self { number_bits: NUMBER_BITS }
    }
}

/// 64 characters in a row of ASCII that neither JSON nor XML escapes: from `?` on, but for `\`, which `!` stands for.
const FIRST: u8 = b'?';

impl Stamp {
    /// Of so many publishers.
    pub(crate) fn of(publishers: u32) -> Self {
        Self { number_bits: if publishers <= FEW { NUMBER_BITS } else { NUMBER_BITS_OF_MANY } }
    }

    /// Numbers of one publisher.
    pub(crate) fn numbers(self) -> u32 {
        1 << self.number_bits
    }

    /// Writes publisher and number in front.
    pub(crate) fn write(self, payload: &mut [u8], publisher: u32, number: u32) {
        let Some(place) = payload.first_chunk_mut::<STAMP_BYTES>() else { return };
        let mut stamp = (u64::from(publisher) << self.number_bits) | u64::from(number);
        for byte in place.iter_mut().rev() {
            *byte = character(stamp);
            stamp >>= 6;
        }
    }

    /// Reads them again; nothing if this is no stamp.
    pub(crate) fn read(self, payload: &[u8]) -> Option<(u32, u32)> {
        let (mut stamp, mut all) = (0u64, 0);
        for byte in payload.first_chunk::<STAMP_BYTES>()? {
            let bits = BITS.get(usize::from(*byte)).copied().unwrap_or(NO_BITS);
            all |= bits;
            stamp = (stamp << 6) | u64::from(bits & 0x3f);
        }
        if all > 0x3f {
            return None;
        }
        let number = u32::try_from(stamp & u64::from(self.numbers() - 1)).ok()?;
        Some((u32::try_from(stamp >> self.number_bits).ok()?, number))
    }
}

/// A payload of this length: text that compresses badly, the same for the same seed.
pub(crate) fn filler(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        character(state >> 58)
    })
    .take(bytes)
    .collect()
}

/// The character of six bits, the lowest of these.
#[inline]
fn character(bits: u64) -> u8 {
    // Six bits are within a byte, and the sum is below 127.
    match FIRST + u8::try_from(bits & 0x3f).unwrap_or_default() {
        b'\\' => b'!',
        other => other,
    }
}

/// Of a character that is not one of them.
const NO_BITS: u8 = 0xff;
/// The six bits of each character: a message is looked at in the time of seven loads.
#[expect(clippy::indexing_slicing, reason = "out of bounds it would not compile")]
const BITS: [u8; 256] = {
    let mut table = [NO_BITS; 256];
    let mut bits = 0;
    while bits < 64 {
        let byte = FIRST + bits;
        table[if byte == b'\\' { b'!' } else { byte } as usize] = bits;
        bits += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let mut payload = filler(20, 3);
        for publishers in [1, FEW, FEW + 1, PUBLISHERS_MAX] {
            let stamp = Stamp::of(publishers);
            for (publisher, number) in [(0, 0), (publishers - 1, stamp.numbers() - 1), (publishers / 2, 123_456)] {
                stamp.write(&mut payload, publisher, number);
                assert_eq!(stamp.read(&payload), Some((publisher, number)), "{publishers}");
                assert!(payload.iter().all(|byte| byte.is_ascii_graphic() && !b"\\\"<>&'".contains(byte)));
            }
        }
        assert_eq!(Stamp::of(1).read(b"short"), None);
        assert_eq!(Stamp::of(1).read(b"with a space"), None);
    }

    #[test]
    fn the_same_seed_fills_alike() {
        assert_eq!(filler(100, 5), filler(100, 5));
        assert_ne!(filler(100, 5), filler(100, 7));
    }
}
