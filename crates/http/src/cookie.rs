//! The cookie of a person's session (RFC 6265): read from requests, set and taken back by responses.
//!
//! Its name begins with `__Host-`, so browsers accept it over TLS (or from this machine) only, for this host alone and
//! for every path. Scripts cannot read it, and requests from other sites do not carry it.

/// The name of the cookie.
pub const NAME: &str = "__Host-fogmux";

/// The attributes of each `Set-Cookie`, without `Max-Age`.
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Strict";

/// Returns the value of the cookie in the `Cookie` fields of a request; the first if there are several.
pub fn find<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    fields.into_iter().flat_map(|field| field.split(|byte| *byte == b';')).find_map(|pair| {
        let value = pair.trim_ascii().strip_prefix(NAME.as_bytes())?.strip_prefix(b"=")?;
        Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
    })
}

/// `Set-Cookie` for a session that ends by itself after so many seconds.
#[must_use]
pub fn set(value: &str, seconds: u64) -> String {
    format!("{NAME}={value}; Max-Age={seconds}; {ATTRIBUTES}")
}

/// `Set-Cookie` that takes the cookie back.
#[must_use]
pub fn clear() -> String {
    set("", 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rfc6265_s5_4_ours_among_others() {
        let find = |fields: &[&'static str]| find(fields.iter().map(|field| field.as_bytes()));
        assert_eq!(find(&["a=b; __Host-fogmux=xyz; c=d"]), Some(&b"xyz"[..]));
        assert_eq!(find(&["a=b", "__Host-fogmux=\"q\""]), Some(&b"q"[..]));
        assert_eq!(find(&["__host-fogmux=x; x__Host-fogmux=y; __Host-fogmux"]), None);
        assert_eq!(set("v", 9), "__Host-fogmux=v; Max-Age=9; Path=/; Secure; HttpOnly; SameSite=Strict");
        assert!(clear().contains("=; Max-Age=0;"));
    }

    proptest! {
        #[test]
        fn any_field_is_answered(field in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = find([&*field]);
        }
    }
}
