//! `POST /login`: what a person or a page sends, and the page that asks.

use std::borrow::Cow;

use serde::Deserialize;

use crate::authorization::Credentials;
use crate::percent;
use crate::problem::{Kind, Problem};

/// Longest body.
pub const BYTES_MAX: usize = 16 << 10;

/// The page, for people without one of their own.
pub const PAGE: &str = include_str!("login.html");
/// It runs nothing, loads nothing, sends only to us and stands in nobody's frame.
pub const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Where the page says why a login was refused.
const FORM: &str = "<form ";

/// The page after a login that was refused: the form again, below the reason.
#[must_use]
pub fn refused(problem: &Problem<'_>) -> String {
    let words = problem.detail.as_deref().unwrap_or(problem.kind.title());
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    PAGE.replacen(FORM, &format!("<p role=\"alert\">Not logged in: {words}.</p>\n{FORM}"), 1)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    user: String,
    password: String,
}

/// Reads a form (`application/x-www-form-urlencoded`) or JSON with the members `user` and `password`.
///
/// # Errors
/// It is neither, or a member is missing.
pub fn parse(content_type: Option<&str>, body: &[u8]) -> Result<Credentials, Problem<'static>> {
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let malformed = || Problem::new(Kind::InvalidBody).detail("`user` and `password` are wanted");
    if media_type.eq_ignore_ascii_case("application/json") {
        let Body { user, password } = serde_json::from_slice(body).map_err(|_| malformed())?;
        return Ok(Credentials { user, password });
    }
    if !media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(Problem::new(Kind::UnsupportedMediaType).detail("a login is a form or JSON"));
    }
    let text = std::str::from_utf8(body).map_err(|_| malformed())?;
    let (mut user, mut password) = (None, None);
    for pair in text.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = match name {
            "user" => &mut user,
            "password" => &mut password,
            _ => continue,
        };
        let value = value.replace('+', " ");
        let decoded = percent::decode(&value).map(Cow::into_owned).map_err(|_| malformed())?;
        if place.replace(decoded).is_some() {
            return Err(malformed());
        }
    }
    user.zip(password).map(|(user, password)| Credentials { user, password }).ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_form_and_json_say_the_same() {
        let form = parse(Some("application/x-www-form-urlencoded"), b"user=al%20ice&x=1&password=a+b%26%3D");
        let json = parse(Some("application/json; charset=utf-8"), br#"{"user":"al ice","password":"a b&="}"#);
        assert_eq!(form, json);
        assert_eq!(form.unwrap().password, "a b&=");
        for (content_type, body) in [
            (None, &b"user=a&password=b"[..]),
            (Some("application/x-www-form-urlencoded"), b"user=a"),
            (Some("application/x-www-form-urlencoded"), b"user=a&user=b&password=c"),
            (Some("application/x-www-form-urlencoded"), b"user=%ff&password=c"),
            (Some("application/json"), br#"{"user":"a"}"#),
        ] {
            assert!(parse(content_type, body).is_err());
        }
    }

    #[test]
    fn the_page_says_why_a_login_was_refused() {
        let wrong = refused(&Problem::new(Kind::Unauthorized).detail("a password"));
        assert!(wrong.contains("<p role=\"alert\">Not logged in: a password.</p>\n<form "), "{wrong}");
        let later = refused(&Problem::new(Kind::TooManyRequests).detail("a < b & c"));
        assert!(later.contains("in: a &lt; b &amp; c.</p>"), "{later}");
    }

    proptest! {
        #[test]
        fn any_body_is_answered(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(Some("application/json"), &body);
            let _ = parse(Some("application/x-www-form-urlencoded"), &body);
        }
    }
}
