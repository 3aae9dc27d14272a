//! `Alt-Svc` (RFC 7838 §3): where HTTP/3 is.

/// How long a client may remember it. A day, the default of RFC 7838 §3.1.
pub const MAX_AGE_SECONDS: u32 = 86_400;

/// `h3=":PORT"; ma=86400` for the same host (RFC 9114 §3.1.1).
#[must_use]
pub fn http3(port: u16) -> String {
    format!("h3=\":{port}\"; ma={MAX_AGE_SECONDS}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_value_is_the_one_browsers_take() {
        assert_eq!(super::http3(8443), "h3=\":8443\"; ma=86400");
    }
}
