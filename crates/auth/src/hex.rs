//! Hexadecimal text, as keys and digests are written in files.

/// The bytes, when the text is digits in pairs.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.bytes().map(digit).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Two lower-case digits a byte.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }
    }

    #[test]
    fn what_is_no_hexadecimal() {
        for text in ["a", "0g", "0x00", " 00", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
