//! How a message is known again: its publisher and number stand in the first bytes of the payload, as text, so that no
//! door needs to encode it.

/// Bytes of a stamp: two for the publisher, five for the number, six bits each.
pub(crate) const STAMP_BYTES: usize = 7;
/// Publishers that can be told apart.
pub(crate) const PUBLISHERS_MAX: u32 = 1 << 12;
/// Numbers of one publisher.
pub(crate) const NUMBERS_MAX: u32 = 1 << 30;

/// 64 characters in a row of ASCII that neither JSON nor XML escapes: from `?` on, but for `\`, which `!` stands for.
const FIRST: u8 = b'?';

/// Writes publisher and number in front.
pub(crate) fn write(payload: &mut [u8], publisher: u32, number: u32) {
    let stamp = (u64::from(publisher) << 30) | u64::from(number);
    for (place, byte) in payload.iter_mut().take(STAMP_BYTES).enumerate() {
        let shift = 6 * (STAMP_BYTES - 1 - place);
        let bits = u8::try_from((stamp >> shift) & 0x3f).unwrap_or_default();
        *byte = character(bits);
    }
}

/// Reads them again; nothing if this is no stamp.
pub(crate) fn read(payload: &[u8]) -> Option<(u32, u32)> {
    let mut stamp = 0u64;
    for byte in payload.get(..STAMP_BYTES)? {
        stamp = (stamp << 6) | u64::from(bits(*byte)?);
    }
    let number = u32::try_from(stamp & u64::from(NUMBERS_MAX - 1)).ok()?;
    Some((u32::try_from(stamp >> 30).ok()?, number))
}

/// A payload of this length: text that compresses badly, the same for the same seed.
pub(crate) fn filler(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        character(u8::try_from(state >> 58).unwrap_or_default())
    })
    .take(bytes)
    .collect()
}

fn character(bits: u8) -> u8 {
    match FIRST + bits {
        b'\\' => b'!',
        other => other,
    }
}

fn bits(byte: u8) -> Option<u8> {
    match byte {
        b'!' => Some(b'\\' - FIRST),
        FIRST..=b'~' => Some(byte - FIRST),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let mut payload = filler(20, 3);
        for (publisher, number) in [(0, 0), (1, 29), (PUBLISHERS_MAX - 1, NUMBERS_MAX - 1), (77, 123_456)] {
            write(&mut payload, publisher, number);
            assert_eq!(read(&payload), Some((publisher, number)));
            assert!(payload.iter().all(|byte| byte.is_ascii_graphic() && !b"\\\"<>&'".contains(byte)));
        }
        assert_eq!(read(b"short"), None);
        assert_eq!(read(b"with a space"), None);
    }

    #[test]
    fn the_same_seed_fills_alike() {
        assert_eq!(filler(100, 5), filler(100, 5));
        assert_ne!(filler(100, 5), filler(100, 7));
    }
}
