//! The additions of DTLS 1.3 to a ClientHello, and the HelloRetryRequest that answers the first (RFC 8446 §4.1.4, RFC
//! 9147 §5.1). Nothing is kept: what has to be known when the client comes back is in the cookie, which only we can
//! make.

use std::{net::SocketAddr, time::Duration};

use super::{
    Suite13,
    schedule::{self, Hash},
};
use crate::{
    Alert, CookieKey,
    cookie::COOKIE,
    exchange::Group,
    hello::{ClientHello, extension},
    wire::{self, ContentType, DTLS_1_2, DTLS_1_3, Reader, Record, message},
};

/// RFC 8446 §4.1.3: SHA-256 of "HelloRetryRequest".
pub(super) const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// The answer to a ClientHello when it came for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(super) suite: Suite13,
    /// The group that it was asked for.
    pub(super) group: Option<Group>,
    /// The hash of that ClientHello, for the transcript.
    pub(super) first: Hash,
}

/// The verdict on a ClientHello of DTLS 1.3.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It is not one, or we speak nothing of it: DTLS 1.2 may.
    Older,
    /// The client can receive at its address.
    Verified(Retry),
    /// The answer, a HelloRetryRequest, is in the buffer.
    Retried,
    /// It does not hold.
    Refused(Alert),
}

impl Retry {
    fn choose(suites: &[Suite13], hello: &ClientHello<'_>, body: &[u8]) -> Result<Self, Alert> {
        let offered = |suite: &&Suite13| Reader(hello.suites).numbers().any(|number| number == suite.number());
        let suite = *suites.iter().find(offered).ok_or(Alert::HandshakeFailure)?;
        let group = match hello.key_shares {
            Some(shares) if share(shares).ok_or(Alert::DecodeError)?.is_some() => None,
            Some(_) | None => hello.groups.and_then(|groups| Group::choose(Some(groups))),
        };
        Ok(Self { suite, group, first: schedule::hash_of_hello(body) })
    }

    /// With the code over it.
    fn cookie(&self, code: &[u8; COOKIE]) -> Vec<u8> {
        let mut cookie = self.bytes();
        cookie.extend_from_slice(code);
        cookie
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.suite.number().to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.group.map_or(0, Group::number).to_be_bytes());
        bytes.extend_from_slice(&self.first);
        bytes
    }

    fn parse(cookie: &[u8]) -> Option<(Self, [u8; COOKIE])> {
        let mut reader = Reader(cookie);
        let suite = Suite13::parse(reader.u16()?)?;
        let group = reader.u16()?;
        let group = if group == 0 { None } else { Some(Group::parse(group)?) };
        let (first, code) = (reader.array()?, reader.array()?);
        reader.is_empty().then_some((Self { suite, group, first }, code))
    }

    /// Returns the body of HelloRetryRequest (RFC 8446 §4.1.4), the same whenever it is asked for.
    pub(super) fn body(&self, cookie: &[u8]) -> Vec<u8> {
        let mut extensions = Vec::with_capacity(80);
        wire::put_extension(&mut extensions, extension::SUPPORTED_VERSIONS, &DTLS_1_3.to_be_bytes());
        if let Some(group) = self.group {
            wire::put_extension(&mut extensions, extension::KEY_SHARE, &group.number().to_be_bytes());
        }
        let mut vector = Vec::with_capacity(2 + cookie.len());
        wire::put_vector16(&mut vector, cookie);
        wire::put_extension(&mut extensions, extension::COOKIE, &vector);
        server_hello(&RETRY, self.suite, &extensions)
    }
}

/// RFC 8446 §4.1.3. RFC 9147 §5.3: the session's name is not echoed.
pub(super) fn server_hello(random: &[u8; 32], suite: Suite13, extensions: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(128);
    body.extend_from_slice(&DTLS_1_2.to_be_bytes());
    body.extend_from_slice(random);
    wire::put_vector8(&mut body, &[]);
    body.extend_from_slice(&suite.number().to_be_bytes());
    body.push(0);
    wire::put_vector16(&mut body, extensions);
    body
}

/// The first of our groups that there is a share of, with that; `None` when the list is not well formed.
#[expect(clippy::option_option, reason = "a list that does not hold is another thing than one without our groups")]
pub(super) fn share(mut list: &[u8]) -> Option<Option<(Group, &[u8])>> {
    let mut found = None;
    while !list.is_empty() {
        let mut reader = Reader(list);
        let (group, point) = (reader.u16()?, reader.vector16()?);
        list = reader.0;
        found = found.or_else(|| Group::parse(group).map(|group| (group, point)));
    }
    Some(found)
}

/// Checks that are the same for the first ClientHello and for the second.
fn check(hello: &ClientHello<'_>) -> Result<(), Alert> {
    // RFC 9147 §5.3: the cookie of DTLS 1.2 is empty, and nothing is compressed.
    if !hello.cookie.is_empty() || hello.compressions != [0] {
        return Err(Alert::IllegalParameter);
    }
    // RFC 8446 §9.2: neither without the other; §4.2.9: no key without a mode.
    if hello.groups.is_some() != hello.key_shares.is_some() || hello.psks.is_some() && hello.psk_modes.is_none() {
        return Err(Alert::MissingExtension);
    }
    Ok(())
}

/// Whether a list of versions (RFC 8446 §4.2.1) has ours.
fn offers(versions: &[u8]) -> bool {
    Reader(versions).numbers().any(|version| version == DTLS_1_3)
}

/// Looks at a ClientHello.
pub(crate) fn look(
    key: &CookieKey,
    now: Duration,
    from: SocketAddr,
    suites: &[Suite13],
    hello: &ClientHello<'_>,
    body: &[u8],
) -> (Offer, Vec<u8>) {
    if suites.is_empty() || !hello.versions.is_some_and(offers) {
        return (Offer::Older, Vec::new());
    }
    if let Err(alert) = check(hello) {
        return (Offer::Refused(alert), Vec::new());
    }
    if let Some(cookie) = hello.retry_cookie {
        // One that is too old or bent cannot be replaced: a client takes one HelloRetryRequest only (§4.1.4).
        let parsed = Retry::parse(cookie).filter(|(retry, code)| {
            suites.contains(&retry.suite) && key.is_good_for(now, from, hello, code, &retry.bytes())
        });
        return match parsed {
            Some((retry, _)) => (Offer::Verified(retry), Vec::new()),
            None => (Offer::Refused(Alert::IllegalParameter), Vec::new()),
        };
    }
    match Retry::choose(suites, hello, body) {
        Ok(retry) => {
            let cookie = retry.cookie(&key.make_for(now, from, hello, &retry.bytes()));
            (Offer::Retried, retry.body(&cookie))
        }
        Err(alert) => (Offer::Refused(alert), Vec::new()),
    }
}

/// Appends a HelloRetryRequest, under the numbers of what it answers.
pub(crate) fn put_retry(out: &mut Vec<u8>, record: &Record<'_>, message_sequence: u16, body: &[u8]) {
    let mut payload = Vec::with_capacity(wire::HANDSHAKE_HEADER + body.len());
    wire::put_message(&mut payload, message::SERVER_HELLO, message_sequence, body);
    wire::put_record(out, ContentType::Handshake, DTLS_1_2, wire::number(0, record.sequence), &payload);
}
