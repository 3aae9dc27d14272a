//! Cursors of lists in which the requester may not read every name. A page may end at such a name, or have nothing that
//! may be read; its cursor is sealed then, so that it tells nothing of the name, not even its length.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fogmux_ccm::{Aes128Enc, Ccm, TagLength};
use fogmux_http::{
    Kind, Problem,
    api::{CURSOR_BYTES_MAX, cursor},
};

/// The first character of a sealed cursor. No topic has it (MQTT 5.0 §4.7.1), and it stands in a query as it is.
const MARK: char = '+';
const KEY_BYTES: usize = 16;
const NONCE_BYTES: usize = 13;
const TAG_BYTES: usize = 16;
/// The longest cursor; shorter ones are filled up. No topic has the byte that fills.
const PLAIN_BYTES: usize = CURSOR_BYTES_MAX + char::MAX.len_utf8();
const FILL: u8 = 0;
/// Says what is sealed.
const PURPOSE: &[u8] = b"the end of a page of topics";

/// The key of a process, made when it is first needed.
#[derive(Default)]
pub(super) struct Cursors(std::sync::OnceLock<Option<Ccm<Aes128Enc, NONCE_BYTES>>>);

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursors").finish_non_exhaustive()
    }
}

impl Cursors {
    /// The cursor of a page that ends at a name that its requester may not read.
    ///
    /// # Errors
    /// 503: there are no random numbers.
    pub(super) fn seal(&self, last: &str) -> Result<String, Problem<'static>> {
        let unavailable = || Problem::new(Kind::Unavailable).detail("there are no random numbers");
        let key = self.key().ok_or_else(unavailable)?;
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| unavailable())?;
        let mut sealed = nonce.to_vec();
        let mut plain = cursor(last).into_bytes();
        plain.resize(PLAIN_BYTES, FILL);
        let tag = key.seal(&nonce, &PURPOSE, &mut plain).ok_or_else(unavailable)?;
        sealed.append(&mut plain);
        sealed.extend_from_slice(&tag);
        let mut text = String::from(MARK);
        URL_SAFE_NO_PAD.encode_string(sealed, &mut text);
        Ok(text)
    }

    /// The name behind which the next page begins.
    ///
    /// # Errors
    /// 400: the cursor is sealed, but not by this process.
    pub(super) fn open<'a>(&self, given: &'a str) -> Result<std::borrow::Cow<'a, str>, Problem<'static>> {
        let Some(text) = given.strip_prefix(MARK) else { return Ok(given.into()) };
        let name = self.opened(text).ok_or_else(|| {
            let detail = "`after` is no `next` of this gateway since its start; begin without it";
            Problem::new(Kind::InvalidParameter).detail(detail)
        })?;
        Ok(name.into())
    }

    fn opened(&self, text: &str) -> Option<String> {
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let (body, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        let mut plain = body.to_vec();
        self.key()?.open(nonce, &PURPOSE, &mut plain, tag)?;
        plain.truncate(plain.iter().position(|byte| *byte == FILL).unwrap_or(plain.len()));
        String::from_utf8(plain).ok()
    }

    fn key(&self) -> Option<&Ccm<Aes128Enc, NONCE_BYTES>> {
        let make = || {
            let mut key = [0; KEY_BYTES];
            getrandom::fill(&mut key).ok()?;
            Ccm::new(&key, TagLength::Sixteen)
        };
        self.0.get_or_init(make).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sealed_cursor_comes_back_and_tells_no_length(name in "[^\u{0}]{1,2000}") {
            let cursors = Cursors::default();
            let sealed = cursors.seal(&name).unwrap();
            prop_assert_eq!(sealed.len(), cursors.seal("a").unwrap().len());
            prop_assert_eq!(cursors.open(&sealed).unwrap(), cursor(&name));
            prop_assert_ne!(cursors.seal(&name).unwrap(), sealed);
        }

        #[test]
        fn any_other_cursor_is_refused_or_a_name(text in ".*", other in any::<u8>()) {
            let cursors = Cursors::default();
            let forged = format!("+{text}");
            prop_assert!(cursors.open(&forged).is_err());
            let mut sealed = cursors.seal("a").unwrap().into_bytes();
            let place = 1 + usize::from(other) % (sealed.len() - 1);
            sealed[place] = if sealed[place] == b'A' { b'B' } else { b'A' };
            prop_assert!(cursors.open(std::str::from_utf8(&sealed).unwrap()).is_err());
            prop_assert!(Cursors::default().open(&cursors.seal("a").unwrap()).is_err());
            if !text.starts_with('+') {
                prop_assert_eq!(cursors.open(&text).unwrap(), &*text);
            }
        }
    }
}
