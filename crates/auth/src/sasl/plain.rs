//! PLAIN (RFC 4616): a name and a password in the clear.

/// A token may stand for the password.
const PASSWORD_BYTES_MAX: usize = 8 << 10;

/// The message of PLAIN: `[authzid] NUL authcid NUL passwd` (RFC 4616 §2).
pub struct Plain<'a> {
    /// The identity to act as; empty for one's own.
    pub authzid: &'a str,
    /// The user's name.
    pub user: &'a str,
    /// The password.
    pub password: &'a [u8],
}

impl<'a> Plain<'a> {
    /// The parts, when the message has exactly these and they are UTF-8 of allowed length.
    #[must_use]
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(message).ok()?.split('\0');
        let (authzid, user, password) = (parts.next()?, parts.next()?, parts.next()?);
        let sizes = authzid.len() <= 255
            && (1..=255).contains(&user.len())
            && (1..=PASSWORD_BYTES_MAX).contains(&password.len());
        (sizes && parts.next().is_none()).then_some(Self { authzid, user, password: password.as_bytes() })
    }

    /// The message for a client to send, without an authorisation identity.
    #[must_use]
    pub fn encode(user: &str, password: &str) -> Vec<u8> {
        format!("\0{user}\0{password}").into_bytes()
    }
}
