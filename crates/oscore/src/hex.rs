//! Bytes as hexadecimal digits.

/// Bytes from hexadecimal digits; an even number of them.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = text.as_bytes().iter().map(digit).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high << 4) | low).collect())
}

/// Two lower-case digits a byte.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
