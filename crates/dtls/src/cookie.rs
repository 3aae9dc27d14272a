//! Cookies without state (RFC 6347 §4.2.1, RFC 9147 §5.1): a code over the address and what the ClientHello offers, by
//! a key that is shared. A cookie is good for its period and the next.

use std::{net::SocketAddr, time::Duration};

use ring::hmac;

use super::hello::ClientHello;

/// Bytes of a cookie. 16 bytes that nobody can guess are enough; older clients take no more than 32.
pub(super) const COOKIE: usize = 16;

/// How long a period is. A cookie is good in the period it was made in and in the next.
const PERIOD: Duration = Duration::from_secs(60);

/// The key that makes cookies. Workers share one: a client may come back to another.
#[derive(Debug)]
pub struct CookieKey(hmac::Key);

impl CookieKey {
    /// A key of random bytes.
    #[must_use]
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    pub(super) fn make(&self, now: Duration, from: SocketAddr, hello: &ClientHello<'_>) -> [u8; COOKIE] {
        self.code(period(now), from, hello, &[])
    }

    /// Whether the ClientHello carries a cookie that we gave to this address for the same offer.
    pub(super) fn is_good(&self, now: Duration, from: SocketAddr, hello: &ClientHello<'_>) -> bool {
        let Ok(cookie) = <&[u8; COOKIE]>::try_from(hello.cookie) else { return false };
        self.is_good_for(now, from, hello, cookie, &[])
    }

    /// A code over what has to be known again as well; in DTLS 1.3 both are the cookie (RFC 8446 §4.2.2).
    pub(super) fn make_for(
        &self,
        now: Duration,
        from: SocketAddr,
        hello: &ClientHello<'_>,
        known: &[u8],
    ) -> [u8; COOKIE] {
        self.code(period(now), from, hello, known)
    }

    pub(super) fn is_good_for(
        &self,
        now: Duration,
        from: SocketAddr,
        hello: &ClientHello<'_>,
        code: &[u8; COOKIE],
        known: &[u8],
    ) -> bool {
        let period = period(now);
        let same = |period| subtle::ConstantTimeEq::ct_eq(&self.code(period, from, hello, known)[..], &code[..]).into();
        same(period) || period.checked_sub(1).is_some_and(same)
    }

    fn code(&self, period: u64, from: SocketAddr, hello: &ClientHello<'_>, known: &[u8]) -> [u8; COOKIE] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&period.to_be_bytes());
        match from {
            SocketAddr::V4(from) => context.update(&from.ip().octets()),
            SocketAddr::V6(from) => context.update(&from.ip().octets()),
        }
        context.update(&from.port().to_be_bytes());
        // Client-Parameters: version, random, session_id, cipher_suites, compression_methods. Each has its length
        // before it, so that nothing can move from one into the next.
        for part in [&hello.random[..], hello.session_id, hello.suites, hello.compressions, known] {
            context.update(&super::wire::length16(part.len()));
            context.update(part);
        }
        let tag = context.sign();
        let mut code = [0; COOKIE];
        code.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
        code
    }
}

const fn period(now: Duration) -> u64 {
    now.as_secs() / PERIOD.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(random: u8, cookie: &[u8]) -> ClientHello<'_> {
        ClientHello {
            random: [random; 32],
            session_id: &[],
            cookie,
            suites: &[0xc0, 0xa8],
            compressions: &[0],
            ..ClientHello::EMPTY
        }
    }

    #[test]
    fn a_cookie_is_good_for_its_address_its_offer_and_a_while() {
        let key = CookieKey::new(&[1; 32]);
        let from: SocketAddr = "192.0.2.1:5000".parse().unwrap();
        let now = Duration::from_secs(600);
        let cookie = key.make(now, from, &hello(1, &[]));
        assert!(key.is_good(now, from, &hello(1, &cookie)));
        assert!(key.is_good(now + PERIOD, from, &hello(1, &cookie)));
        assert!(!key.is_good(now + 2 * PERIOD, from, &hello(1, &cookie)));
        assert!(!key.is_good(now, "192.0.2.1:5001".parse().unwrap(), &hello(1, &cookie)));
        assert!(!key.is_good(now, "192.0.2.2:5000".parse().unwrap(), &hello(1, &cookie)));
        assert!(!key.is_good(now, from, &hello(2, &cookie)));
        assert!(!key.is_good(now, from, &hello(1, &[])));
        assert!(!CookieKey::new(&[2; 32]).is_good(now, from, &hello(1, &cookie)));
    }
}
