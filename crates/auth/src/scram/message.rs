//! The grammar of SCRAM messages (RFC 5802 §7): attributes, names and nonces, parsed without trust.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// No message of an honest peer comes near this.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4096;

/// Why an exchange ended badly; the peer learns [`ScramError::reason`] at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// Not a message of the grammar.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// A mandatory extension (`m=`), which nobody has defined.
    #[error("SCRAM extensions are not supported")]
    ExtensionsNotSupported,
    /// Channel binding asked where there is none, left out where it was offered, or of another channel.
    #[error("channel binding does not fit")]
    ChannelBinding,
    /// The proof is wrong, or there is no such user.
    #[error("invalid proof")]
    InvalidProof,
    /// The nonce or header is not the one of this exchange.
    #[error("not the nonce or header of this exchange")]
    OtherExchange,
}

impl ScramError {
    /// The `server-error-value` of RFC 5802 §7.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Malformed(_) => "invalid-encoding",
            Self::ExtensionsNotSupported => "extensions-not-supported",
            Self::ChannelBinding => "channel-bindings-dont-match",
            Self::InvalidProof => "invalid-proof",
            Self::OtherExchange => "other-error",
        }
    }
}

/// The text of a message of plausible size.
pub(crate) fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(ScramError::Malformed("too long"));
    }
    let text = std::str::from_utf8(message).map_err(|_| ScramError::Malformed("not UTF-8"))?;
    if text.contains('\0') { Err(ScramError::Malformed("NUL")) } else { Ok(text) }
}

/// Takes `name=value` up to the next comma; the rest comes back without that comma.
pub(crate) fn attribute<'a>(rest: &'a str, name: &str) -> Result<(&'a str, Option<&'a str>), ScramError> {
    let value = rest
        .strip_prefix(name)
        .and_then(|after| after.strip_prefix('='))
        .ok_or(ScramError::Malformed("attribute missing or out of order"))?;
    Ok(match value.split_once(',') {
        Some((value, rest)) => (value, Some(rest)),
        None => (value, None),
    })
}

/// The attributes after those the grammar names: any letter but `m` is ignored (RFC 5802 §5.1).
pub(crate) fn extensions(rest: Option<&str>) -> Result<(), ScramError> {
    for extension in rest.into_iter().flat_map(|rest| rest.split(',')) {
        let mut characters = extension.chars();
        match (characters.next(), characters.next()) {
            (Some('m'), Some('=')) => return Err(ScramError::ExtensionsNotSupported),
            (Some(letter), Some('=')) if letter.is_ascii_alphabetic() => {}
            (Some(_) | None, Some(_) | None) => return Err(ScramError::Malformed("extension")),
        }
    }
    Ok(())
}

/// `saslname`: `=2C` is a comma, `=3D` an equals sign, any other `=` an error.
pub(crate) fn decode_name(encoded: &str) -> Result<String, ScramError> {
    let mut name = String::with_capacity(encoded.len());
    let mut parts = encoded.split('=');
    name.push_str(parts.next().unwrap_or_default());
    for part in parts {
        if let Some(rest) = part.strip_prefix("2C") {
            name.push(',');
            name.push_str(rest);
        } else if let Some(rest) = part.strip_prefix("3D") {
            name.push('=');
            name.push_str(rest);
        } else {
            return Err(ScramError::Malformed("name"));
        }
    }
    if name.is_empty() { Err(ScramError::Malformed("empty name")) } else { Ok(name) }
}

/// The inverse of [`decode_name`].
pub(crate) fn encode_name(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// `printable`: visible ASCII without the comma, at least one.
pub(crate) fn nonce(value: &str) -> Result<&str, ScramError> {
    let printable = |byte: u8| (0x21..=0x7E).contains(&byte) && byte != b',';
    if !value.is_empty() && value.bytes().all(printable) { Ok(value) } else { Err(ScramError::Malformed("nonce")) }
}

pub(crate) fn base64(value: &str) -> Result<Vec<u8>, ScramError> {
    STANDARD.decode(value).map_err(|_| ScramError::Malformed("base64"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_round_trip(name in "[^\0]{1,40}") {
            prop_assert_eq!(decode_name(&encode_name(&name)).unwrap(), name);
        }
    }

    #[test]
    fn s5_1_other_escapes_are_an_error() {
        for name in ["a=2c", "a=", "=4D", "=", ""] {
            assert!(decode_name(name).is_err(), "{name}");
        }
    }
}
